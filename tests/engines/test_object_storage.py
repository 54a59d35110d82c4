"""Commands and Snakemake mean the same files where these lie in an object storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from twf.engines.object_storage import keep_copies_here
from twf.errors import UserError

COPIES = Path(".snakemake/storage/s3/bucket/twf")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("here")
def test_what_a_command_writes_is_the_copy_and_the_other_way_round():
    keep_copies_here(COPIES)
    keep_copies_here(COPIES)  # as each Snakemake does
    Path("data").mkdir()
    Path("data/made").touch()
    (COPIES / "data/retrieved").touch()
    assert (COPIES / "data/made").exists() and Path("data/retrieved").exists()


def test_a_folder_that_is_moved_stays_its_own(here: Path, monkeypatch: pytest.MonkeyPatch):
    keep_copies_here(COPIES)
    monkeypatch.chdir(here.rename(here.with_name("moved")))
    keep_copies_here(COPIES)
    assert COPIES.resolve() == Path.cwd()


def test_copies_that_are_there_already_are_named_and_left(here: Path):
    COPIES.mkdir(parents=True)
    (COPIES / "made").touch()
    with pytest.raises(UserError, match=f"{COPIES} .*delete it"):
        keep_copies_here(COPIES)
    assert (COPIES / "made").exists()


def test_a_bucket_without_a_folder_in_it_will_do(here: Path):
    keep_copies_here(COPIES.parent)
    assert COPIES.parent.resolve() == here
