"""What is installed for whom: pyproject.toml is the one definition, and nothing contradicts it."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from project import PROJECT

import twf
from twf.upkeep import doctor

METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
EXTRAS = METADATA["optional-dependencies"]
REQUIREMENTS = {
    canonicalize_name(r.name): r
    for r in map(Requirement, [*METADATA["dependencies"], *(x for e in EXTRAS.values() for x in e)])
}


def constraints() -> list[Requirement]:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_the_conda_environment_installs_what_make_setup_does() -> None:
    """What pyproject.toml asks for, in the versions of constraints.txt."""
    python, pip, by_pip = yaml.safe_load((PROJECT / "environment.yml").read_text())["dependencies"]
    assert (python, pip) == (f"python{METADATA['requires-python']}", "pip")
    constraints, project = by_pip["pip"]
    assert constraints == "--constraint constraints.txt"
    extras = re.fullmatch(r"--editable \.\[([a-z,]+)\]", project)[1].split(",")
    assert {"", *extras} == set(doctor.EXTRAS)


@pytest.mark.parametrize("version", ["3.11", "3.12"])
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
