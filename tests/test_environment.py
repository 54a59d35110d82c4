"""What is installed: pyproject.toml is the one definition, and nothing contradicts it."""

import re
import tomllib

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from support import PROJECT

METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
NEWEST = (f"3.{minor}.99" for minor in range(100))
PYTHONS = [*SpecifierSet(METADATA["requires-python"]).filter(NEWEST)]
EXTRAS = METADATA["optional-dependencies"].values()
REQUIREMENTS = [*map(Requirement, [*METADATA["dependencies"], *(x for e in EXTRAS for x in e)])]


@pytest.mark.parametrize("version", PYTHONS)
def test_the_constraints_pin_everything_that_pyproject_asks_for_and_name_no_host(version):
    here = default_environment() | {
        "python_version": version.removesuffix(".99"),
        "python_full_version": version,
        "sys_platform": "linux",
    }
    text = (PROJECT / "constraints.txt").read_text()
    assert not re.search(r"://|\.whl|--|@|file:", text)
    pinned = {
        canonicalize_name(pin.name): pin.specifier
        for pin in map(Requirement, filter(None, text.splitlines()))
        if pin.marker is None or pin.marker.evaluate(here)
    }
    for requirement in REQUIREMENTS:
        (pin,) = pinned[canonicalize_name(requirement.name)]
        assert pin.operator == "==" and requirement.specifier.contains(pin.version), requirement


def test_the_conda_environment_installs_what_make_setup_does():
    conda = yaml.safe_load((PROJECT / "workflow/envs/environment.yml").read_text())
    python, pip, by_pip = conda["dependencies"]
    assert (python, pip) == (f"python{METADATA['requires-python']}", "pip")
    # paths that hold in Snakemake's copy too: .snakemake/conda is as deep as workflow/envs
    assert by_pip["pip"][0] == "--constraint ../../constraints.txt"
    assert by_pip["pip"][1].startswith("--editable ../..[")
