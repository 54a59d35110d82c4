"""The environment that Snakemake makes for its jobs, where it is to have conda make one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import stand_ins.conda
from miniature import call
from project import PROJECT

pytestmark = pytest.mark.slow


def test_jobs_run_in_the_environment_that_conda_makes_of_the_projects_file(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand it is the same file, from which the project is as far as from Snakemake's copy."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy2(PROJECT / name, fresh)
    conda = stand_ins.conda.install(tmp_path / "conda")
    monkeypatch.setenv("PATH", str(conda), prepend=os.pathsep)
    by_hand = ("env", "create", "--file", "workflow/envs/environment.yml")
    call(fresh, str(conda / "conda"), *by_hand, "--prefix", str(tmp_path / "by-hand"))
    words = ("data/digits.safetensors", "--cores", "1")
    call(fresh, "snakemake", *words, "--software-deployment-method", "conda")
    (called,) = fresh.glob(".snakemake/conda/*/called")
    assert called.read_text() == "data prepare plans/data/digits.json\n"
