"""Projects that the tests of the engines begin with: each is made once, and copied."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from miniature import REPORT, call, checkout, commit, copied, idle, outputs, written

Prepared = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """`prepared(name, make)`: the folder that `make(folder)` makes, once for all processes."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # which the workers share

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder = place / name / "project"
        folder.parent.mkdir(exist_ok=True)
        made = folder.with_name("made")
        with FileLock(folder.with_name("lock")):
            if not made.exists():
                make(folder)
                made.touch()
        return folder

    return once


@pytest.fixture(scope="session")
def empty(prepared: Prepared) -> Path:
    """A checkout of the project's pipeline with the miniature study, nothing made yet."""
    return prepared("empty", checkout)


@pytest.fixture(scope="session")
def made(empty: Path, prepared: Prepared) -> Path:
    """The same after `snakemake`, and then `dvc repro`, which made nothing."""

    def make(folder: Path) -> None:
        copied(empty, folder.parent)
        call(folder, "snakemake", REPORT, "--cores", "2")
        before = outputs(folder)
        said = call(folder, "dvc", "repro", "report@demo")
        assert written(before, outputs(folder)) == set() and "to do" not in said
        assert idle(folder)

    return prepared("made", make)


@pytest.fixture(scope="session")
def shared(made: Path, prepared: Prepared) -> Path:
    """The same, all of it known to DVC and committed."""

    def make(folder: Path) -> None:
        copied(made, folder.parent)
        stages = call(folder, "twf", "plan", "demo", "--stages").split()
        call(folder, "dvc", "repro", *stages)
        commit(folder)

    return prepared("shared", make)


@pytest.fixture
def fresh(empty: Path, tmp_path: Path) -> Path:
    """A copy of `empty` for one test."""
    return copied(empty, tmp_path)


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """A copy of `made` for one test."""
    return copied(made, tmp_path)
