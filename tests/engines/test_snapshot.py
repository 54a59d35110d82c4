"""Jobs read what Snakemake planned with; a change of `params.yaml` meanwhile ends in an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from twf import files
from twf.engines import snapshot
from twf.engines.snapshot import Snapshot
from twf.errors import UserError
from twf.study import reading


@pytest.fixture(autouse=True)
def _variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(snapshot.VARIABLE, "")  # restored when the test ends


def test_jobs_read_what_was_planned_whatever_the_file_says_later(tiny_project) -> None:
    planned = Snapshot.read(remote=False)
    for _ in range(2):  # another Snakemake may keep the same
        planned.keep(Path("kept"))
    files.PARAMS.write_text("study: none\n")
    (kept,) = Path("kept").iterdir()
    assert os.environ[snapshot.VARIABLE] == str(kept)
    assert reading.load(kept) == planned.params == Snapshot.read(remote=True).params


@pytest.mark.parametrize("end", ["gpu_slots: 3\n", "gpu_slots: [\n"], ids=["other", "broken"])
def test_a_change_of_values_is_refused_and_a_comment_is_not(tiny_project, end) -> None:
    planned = Snapshot.read(remote=False)
    planned.require_unchanged()
    text = files.PARAMS.read_text()
    files.PARAMS.write_text(f"# mine\n{yaml.safe_dump(yaml.safe_load(text))}")
    planned.require_unchanged()
    files.PARAMS.write_text(text + end)
    with pytest.raises(UserError, match=r"params\.yaml"):
        planned.require_unchanged()


def test_config_may_choose_the_study_and_nothing_else(tiny_project) -> None:
    planned = Snapshot.read(remote=False)
    assert planned.study({}) == planned.study({"study": "tiny"}) == "tiny"
    for wrong, named in (({"study": "tyni"}, "tyni"), ({"gpu_slots": "3"}, "--config")):
        with pytest.raises(UserError, match=named):
            planned.study(wrong)
