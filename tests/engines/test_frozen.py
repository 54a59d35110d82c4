"""What Snakemake planned with is what its jobs read, and a change meanwhile is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from project import PROJECT

from twf import files
from twf.engines import frozen
from twf.errors import UserError
from twf.study import reading


@pytest.fixture(autouse=True)
def _variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(frozen.VARIABLE, "")  # restored when the test ends


@pytest.mark.parametrize("path", [PROJECT / files.PARAMS, files.PARAMS], ids=["ours", "tiny"])
def test_jobs_read_what_was_planned_whatever_the_file_says_later(tiny_project, path) -> None:
    loaded = reading.load(path)
    frozen.keep(loaded, Path("kept"))
    frozen.keep(loaded, Path("kept"))  # by another Snakemake
    files.PARAMS.write_text("study: none\n")
    (kept,) = Path("kept").iterdir()
    assert os.environ[frozen.VARIABLE] == str(kept)
    assert reading.load(kept) == loaded
    assert frozen.file(remote=True) == kept
    assert frozen.file(remote=False) == files.PARAMS


@pytest.mark.parametrize("end", ["gpu_slots: 3\n", "gpu_slots: [\n"], ids=["other", "broken"])
def test_a_change_is_told_and_a_comment_is_none(tiny_project, end) -> None:
    loaded = reading.load(files.PARAMS)
    frozen.require_unchanged(loaded, files.PARAMS)
    text = files.PARAMS.read_text()
    files.PARAMS.write_text(f"# mine\n{yaml.safe_dump(yaml.safe_load(text))}")
    frozen.require_unchanged(loaded, files.PARAMS)
    files.PARAMS.write_text(text + end)
    with pytest.raises(UserError, match=r"params\.yaml was changed meanwhile.*call again"):
        frozen.require_unchanged(loaded, files.PARAMS)
