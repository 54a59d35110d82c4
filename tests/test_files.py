"""Outputs appear whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from twf import files
from twf.errors import UserError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_written_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "a" / "b" / "out.txt"
    with files.atomic(path) as partial:
        assert partial.parent == path.parent, "a rename must not cross file systems"
        assert partial.suffix == ".partial"  # which git and DVC pass over
        partial.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(path.parent) == ["out.txt"]


@pytest.mark.parametrize(
    ("error", "text"), [(ValueError, "half"), (KeyboardInterrupt, None), (SystemExit, "half")]
)
def test_an_error_shows_and_leaves_the_old_file_and_nothing_else(tmp_path, error, text):
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail() -> None:
        with files.atomic(path) as partial:
            if text is not None:
                partial.write_text(text)
            raise error("the cause")

    with pytest.raises(error, match="the cause"):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.txt"]


def test_two_processes_do_not_write_into_one_partial_file(tmp_path, monkeypatch):
    with files.atomic(tmp_path / "out.txt") as ours:
        ours.write_text("ours")
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with files.atomic(tmp_path / "out.txt") as theirs:
            theirs.write_text("theirs")
        assert (tmp_path / "out.txt").read_text() == "theirs"
    assert (tmp_path / "out.txt").read_text() == "ours"


def test_what_the_disk_refuses_is_a_users_mistake(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    refused = pytest.raises(UserError, match="cannot write .*: make that possible, then call again")
    with refused, files.writing(path):
        (path / "below").mkdir()
    full = pytest.raises(UserError, match="No space left on device.*: free some space there")
    with full, files.writing(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    refused = pytest.raises(UserError, match=f"cannot write {path / 'below'} ")
    with refused, files.atomic(path / "below"):
        pass


def test_a_lock_lets_one_in_at_a_time(tmp_path):
    lock = tmp_path / "a" / "lock"
    with files.locked(lock, "counting"):
        refused = pytest.raises(UserError, match=f"counting is being done by another.*{lock}")
        with refused, files.locked(lock, "counting"):
            pytest.fail("two were let in")
    with files.locked(lock, "counting"):
        pass
    assert names(lock.parent) == []


def test_a_lock_where_none_can_be_is_a_users_mistake(tmp_path, monkeypatch):
    code = errno.ENOLCK

    def no_locks(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    refused = pytest.raises(UserError, match=f"{tmp_path / 'lock'} .*{os.strerror(code)}")
    with refused, files.locked(tmp_path / "lock", "counting"):
        pytest.fail("it went on without a lock")
