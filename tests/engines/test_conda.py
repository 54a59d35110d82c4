"""The environment that Snakemake makes for its jobs, where it is to have conda make one."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest
import stand_ins.conda
import yaml
from miniature import call
from project import PROJECT

from twf.engines.conda import environment_file


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what decides what is installed; the test is in it."""
    folder = tmp_path / "a project"
    folder.mkdir()
    for name in ("environment.yml", "pyproject.toml", "constraints.txt"):
        shutil.copy2(PROJECT / name, folder)
    monkeypatch.chdir(folder)
    return folder


def test_snakemake_has_conda_install_this_folder_from_anywhere(checkout: Path) -> None:
    """Snakemake copies the file to `.snakemake/conda`, or to any `--conda-prefix`."""
    file = environment_file(checkout)
    assert file.is_absolute() and file.is_relative_to(checkout)
    ours = yaml.safe_load((checkout / "environment.yml").read_text())
    made = yaml.safe_load(file.read_text())
    for part in (ours, made):
        part["pip"] = part["dependencies"].pop()["pip"]
    lines = zip(ours.pop("pip"), made.pop("pip"), strict=True)
    assert made == ours
    for line, absolute in lines:
        option, path = line.split()
        assert (option, str(checkout / path)) == tuple(  # pip splits options as a shell does
            str(Path(word)) if "/" in word else word for word in shlex.split(absolute)
        )


@pytest.mark.parametrize("name", ["environment.yml", "pyproject.toml", "constraints.txt"])
def test_another_pin_makes_another_environment(checkout: Path, name: str) -> None:
    """Snakemake makes an environment anew when its file has changed."""
    before = environment_file(checkout).read_text()
    assert environment_file(checkout).read_text() == before
    with (checkout / name).open("a") as file:
        file.write("\n# changed\n" if name != "environment.yml" else "\nprefix: changed\n")
    assert environment_file(checkout).read_text() != before


@pytest.mark.slow
def test_jobs_run_in_the_environment_that_conda_makes(
    tiny_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has what `make setup` installs; a server would do their work in Snakemake's own."""
    conda = stand_ins.conda.install(tmp_path / "conda")
    monkeypatch.setenv("PATH", str(conda), prepend=os.pathsep)
    (tiny_project / "results").mkdir()
    shutil.copy2(PROJECT / "results/printed.csv", tiny_project / "results")
    words = ["--snakefile", str(PROJECT / "Snakefile"), "--cores", "1"]
    target = "data/target.safetensors"
    call(tiny_project, "snakemake", target, *words, "--software-deployment-method", "conda")
    (called,) = tiny_project.glob(".snakemake/conda/*/called")
    assert called.read_text() == "data prepare target\n"
    assert not list(tiny_project.glob(".snakemake/twf-*.log"))
