"""What Snakemake planned with is what its jobs read, and a change meanwhile is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from twf import files, params, planned
from twf.errors import UserError

PROJECT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(planned.VARIABLE, "")  # restored when the test ends


@pytest.mark.parametrize("path", [PROJECT / files.PARAMS, files.PARAMS], ids=["ours", "tiny"])
def test_jobs_read_what_was_planned_whatever_the_file_says_later(tiny_project, path) -> None:
    loaded = params.load(path)
    planned.keep(loaded, Path("kept"))
    planned.keep(loaded, Path("kept"))  # by another Snakemake
    files.PARAMS.write_text("study: none\n")
    (kept,) = Path("kept").iterdir()
    assert os.environ[planned.VARIABLE] == str(kept)
    assert params.load(kept) == loaded
    assert planned.file(remote=True) == kept
    assert planned.file(remote=False) == files.PARAMS


@pytest.mark.parametrize("end", ["gpu_slots: 3\n", "gpu_slots: [\n"], ids=["other", "broken"])
def test_a_change_is_told_and_a_comment_is_none(tiny_project, end) -> None:
    loaded = params.load(files.PARAMS)
    planned.require_unchanged(loaded, files.PARAMS)
    text = files.PARAMS.read_text()
    files.PARAMS.write_text(f"# mine\n{yaml.safe_dump(yaml.safe_load(text))}")
    planned.require_unchanged(loaded, files.PARAMS)
    files.PARAMS.write_text(text + end)
    with pytest.raises(UserError, match=r"params\.yaml was changed meanwhile.*call again"):
        planned.require_unchanged(loaded, files.PARAMS)
