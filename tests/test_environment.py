"""What is installed for whom: pyproject.toml is the one definition, and nothing contradicts it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from project import METADATA, PROJECT, PYTHONS

import twf
from twf.upkeep import doctor

EXTRAS = METADATA["optional-dependencies"]
REQUIREMENTS = {
    canonicalize_name(r.name): r
    for r in map(Requirement, [*METADATA["dependencies"], *(x for e in EXTRAS.values() for x in e)])
}


def constraints() -> list[Requirement]:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


ENVIRONMENT = PROJECT / "workflow/envs/environment.yml"


def test_the_conda_environment_installs_what_make_setup_does() -> None:
    """What pyproject.toml asks for, in the versions of constraints.txt."""
    python, pip, by_pip = yaml.safe_load(ENVIRONMENT.read_text())["dependencies"]
    assert (python, pip) == (f"python{METADATA['requires-python']}", "pip")
    constraints, project = by_pip["pip"]
    assert constraints == "--constraint ../../constraints.txt"
    extras = re.fullmatch(r"--editable \.\./\.\.\[([a-z,]+)\]", project)[1].split(",")
    assert {"", *extras} == set(doctor.EXTRAS)


def test_the_readme_names_the_pythons_of_pyproject():
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in (PROJECT / "README.md").read_text()


@pytest.mark.parametrize("version", PYTHONS)
def test_the_constraints_pin_everything_that_pyproject_asks_for(version):
    here = default_environment() | {
        "python_version": version,
        "python_full_version": f"{version}.1",
        "sys_platform": "linux",
    }
    pinned: dict[str, str] = {}
    for constraint in constraints():
        if constraint.marker is None or constraint.marker.evaluate(here):
            (pin,) = constraint.specifier
            assert pin.operator == "==", constraint
            name = canonicalize_name(constraint.name)
            assert name not in pinned, f"{name} is pinned twice for Python {version}"
            pinned[name] = pin.version
    for name, requirement in REQUIREMENTS.items():
        assert requirement.specifier.contains(pinned[name]), requirement


# keeps what is asked of it, but for a look at its version
STAND_IN = """#!/bin/sh
[ "$1" = -c ] || {{ echo "$@" > asked; exit 1; }}
code=$2; shift 2
exec {python} -c "import sys; sys.version_info = ({version}, 0)
$code" "$@"
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder in which `make setup` would begin."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(PROJECT / name, tmp_path)
    return tmp_path


def set_up(folder: Path, version: str) -> str:
    """What `make setup` says, with a stand-in that says it is a Python of this version."""
    python = folder / "python"
    python.write_text(STAND_IN.format(python=sys.executable, version=version.replace(".", ", ")))
    python.chmod(0o755)
    words = ["make", f"PYTHON={python}", "setup"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True).stderr


@pytest.mark.parametrize("version", [*PYTHONS, "2.7", "3.10", f"3.{int(PYTHONS[-1][2:]) + 1}"])
def test_make_takes_the_pythons_of_pyproject_and_names_them_to_others(
    bare: Path, version: str
) -> None:
    said, asked = set_up(bare, version), bare / "asked"
    if version in PYTHONS:
        assert asked.read_text() == "-m venv .venv\n"
        return
    assert not asked.exists()
    refusal, end = said.splitlines()
    assert re.findall(r"\d+\.\d+", refusal.split(":")[0]) == [version, *PYTHONS]
    assert f"make PYTHON=python{PYTHONS[-1]}" in refusal and end.startswith("make: ***")


def test_an_environment_that_was_left_without_pip_is_completed(bare: Path) -> None:
    """As on Debian without python3-venv, which the next try may have, or by Ctrl-C."""
    venv.create(bare / ".venv", with_pip=False)
    set_up(bare, PYTHONS[0])
    assert (bare / "asked").read_text() == "-m venv .venv\n"


def test_the_constraints_name_packages_and_versions_alone():
    """No host, no path: they serve on any machine, with its own index."""
    text = (PROJECT / "constraints.txt").read_text()
    assert not re.search(r"://|\.whl|--|@|file:", text)
    assert all(constraint.url is None for constraint in constraints())


def test_version_and_licence_are_the_same_everywhere():
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    assert {"cff-version", "title"} <= citation.keys()
    assert twf.__version__ == METADATA["version"] == str(citation["version"])
    assert METADATA["license"] == citation["license"] == "MIT"
    assert (PROJECT / "LICENSE").read_text().startswith("MIT License")
