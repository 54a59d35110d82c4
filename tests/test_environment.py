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

METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
EXTRAS = METADATA["optional-dependencies"]
REQUIREMENTS = {
    canonicalize_name(r.name): r
    for r in map(Requirement, [*METADATA["dependencies"], *(x for e in EXTRAS.values() for x in e)])
}
CONTAINERFILE = PROJECT / "workflow/Containerfile"
CONDA = yaml.safe_load((PROJECT / "environment.yml").read_text())["dependencies"]


def constraints() -> list[Requirement]:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_the_conda_environment_pins_as_pyproject_does():
    packages = [Requirement(line) for line in CONDA if isinstance(line, str)]
    pip = [line for part in CONDA if isinstance(part, dict) for line in part["pip"]]
    packages += [Requirement(line) for line in pip if not line.startswith("-")]
    names = {canonicalize_name(package.name) for package in packages}
    assert "python" in names
    for package in packages:
        name = canonicalize_name(package.name)
        if name == "python":
            assert package.specifier == SpecifierSet(METADATA["requires-python"])
        elif name != "pip":
            assert package.specifier == REQUIREMENTS[name].specifier, package


def test_the_conda_environment_installs_the_project_with_what_the_pipeline_needs():
    (pip,) = [part["pip"] for part in CONDA if isinstance(part, dict)]
    (editable,) = [line for line in pip if line.startswith("-e")]
    match = re.fullmatch(r"-e \.\[([a-z,]+)\]", editable)
    assert match, editable
    extras = set(match[1].split(","))
    assert extras <= EXTRAS.keys()
    assert extras >= {"pipeline", "report"}


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


def instructions() -> list[tuple[str, str]]:
    """The lines of the container file: their first word, and the rest."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.M).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2]) for line in text.splitlines() if line]


def test_the_container_has_a_python_that_the_project_supports_by_its_full_version():
    (base,) = [rest for word, rest in instructions() if word == "FROM"]
    match = re.fullmatch(r"python:(\d+\.\d+\.\d+)-slim-[a-z]+", base)
    assert match, base
    assert SpecifierSet(METADATA["requires-python"]).contains(match[1])


def test_the_container_gets_files_that_are_there_and_all_that_a_build_reads():
    copied = [word for name, rest in instructions() if name == "COPY" for word in rest.split()[:-1]]
    assert all((PROJECT / name).exists() for name in copied)
    assert {"pyproject.toml", "constraints.txt", METADATA["readme"], "src"} <= set(copied)
    assert set(copied) >= set(METADATA["license-files"])


def test_the_container_installs_the_project_with_pinned_packages_for_another_user():
    said = instructions()
    (installed,) = [rest for word, rest in said if word == "RUN" and "pip install" in rest]
    match = re.search(r"--constraint /opt/twf/constraints.txt\s+'/opt/twf\[([a-z,]+)\]'", installed)
    assert match, installed
    assert {"pipeline", "kubernetes"} <= set(match[1].split(",")) <= EXTRAS.keys()
    assert installed.count("pip ") == installed.count("--constraint /opt/twf/constraints.txt")
    assert [rest for word, rest in said if word == "USER"] == ["1000"]


def test_the_version_is_the_same_everywhere():
    assert twf.__version__ == METADATA["version"]
    profile = yaml.safe_load((PROJECT / "workflow/profiles/kubernetes/config.yaml").read_text())
    assert profile["container-image"].endswith(f":{twf.__version__}")
    assert f"--tag {profile['container-image']} ." in CONTAINERFILE.read_text()


def test_the_licence_is_mit_everywhere():
    assert METADATA["license"] == "MIT"
    assert (PROJECT / "LICENSE").read_text().startswith("MIT License")


def test_the_citation_names_this_version_and_licence():
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    assert {"cff-version", "title", "version", "license"} <= citation.keys()
    assert str(citation["version"]) == twf.__version__
    assert citation["license"] == "MIT"
