"""What is installed for whom: pyproject.toml is the one definition, and nothing contradicts it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from processes import environment
from project import METADATA, PROJECT, PYTHONS

import twf

EXTRAS = METADATA["optional-dependencies"]
REQUIREMENTS = {
    canonicalize_name(r.name): r
    for r in map(Requirement, [*METADATA["dependencies"], *(x for e in EXTRAS.values() for x in e)])
}


def test_the_conda_environment_installs_what_make_setup_does() -> None:
    """By paths that hold in Snakemake's copy too: .snakemake/conda is as deep as workflow/envs."""
    file = PROJECT / "workflow/envs/environment.yml"
    python, pip, by_pip = yaml.safe_load(file.read_text())["dependencies"]
    assert (python, pip) == (f"python{METADATA['requires-python']}", "pip")
    constraints, project = by_pip["pip"]
    assert constraints == "--constraint ../../constraints.txt"
    extras = re.fullmatch(r"--editable \.\./\.\.\[([a-z,]+)\]", project)[1].split(",")
    assert set(extras) == EXTRAS.keys() - {"dev", "services"}


@pytest.mark.parametrize("version", PYTHONS)
def test_the_constraints_pin_everything_that_pyproject_asks_for_and_name_no_host(version):
    here = default_environment() | {
        "python_version": version,
        "python_full_version": f"{version}.1",
        "sys_platform": "linux",
    }
    text = (PROJECT / "constraints.txt").read_text()
    assert not re.search(r"://|\.whl|--|@|file:", text)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pinned: dict[str, str] = {}
    for constraint in map(Requirement, lines):
        if constraint.marker is None or constraint.marker.evaluate(here):
            (pin,) = constraint.specifier
            assert pin.operator == "==", constraint
            name = canonicalize_name(constraint.name)
            assert name not in pinned, f"{name} is pinned twice for Python {version}"
            pinned[name] = pin.version
    for name, requirement in REQUIREMENTS.items():
        assert requirement.specifier.contains(pinned[name]), requirement


def make(folder: Path, *words: str) -> str:
    """What `make` says in a folder that has the Makefile; it fails."""
    command = ["make", f"PYTHON={sys.executable}", *words]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder in which `make setup` would begin."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(PROJECT / name, tmp_path)
    return tmp_path


def test_make_refuses_a_python_that_pyproject_does_not_allow_and_names_those_it_does(bare):
    other = METADATA["requires-python"].replace("3.", "3.9")
    text = (bare / "pyproject.toml").read_text()
    (bare / "pyproject.toml").write_text(text.replace(METADATA["requires-python"], other))
    said = make(bare, "setup")
    assert "make PYTHON=python3.913" in said and not (bare / ".venv").exists()


@pytest.mark.slow
def test_make_format_lint_reports_types_too_when_ruff_finds_something(bare):
    for name in ("src", "benchmarks", "workflow"):
        (bare / name).mkdir()
    for name in ("Snakefile", "benchmarks/__init__.py"):
        (bare / name).touch()
    (bare / "src/wrong.py").write_text("number: int = 'text'\nprint(undefined)\n")
    said = make(bare, "--assume-old", ".venv/installed", "format", "lint")
    assert "Undefined name" in said and "[assignment]" in said


def test_version_and_licence_are_the_same_everywhere():
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    assert twf.__version__ == METADATA["version"] == str(citation["version"])
    assert METADATA["license"] == citation["license"] == "MIT"
