"""Outputs appear whole or not at all."""

import errno
import os

import pytest

from twf import files
from twf.errors import UserError


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_written_file_appears_whole_when_the_block_ends_or_not_at_all(tmp_path, error):
    path = tmp_path / "a" / "b" / "out.txt"
    with files.atomic(path) as partial:
        assert partial.parent == path.parent, "a rename must not cross file systems"
        assert partial.suffix == ".partial"  # which git and DVC pass over
        partial.write_text("old")
        assert not path.exists()

    def fail() -> None:
        with files.atomic(path) as partial:
            partial.write_text("half")
            raise error("the cause")

    with pytest.raises(error, match="the cause"):
        fail()
    assert path.read_text() == "old" and list(path.parent.iterdir()) == [path]


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
    refused = pytest.raises(UserError, match=f"cannot write {path / 'below'} .*: make that poss")
    with refused, files.atomic(path / "below"):
        pass
    full = pytest.raises(UserError, match=f"cannot write {path} .No space left on device")
    with full, files.writing(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_lock_lets_one_in_at_a_time(tmp_path):
    lock = tmp_path / "a" / "lock"
    for _ in range(2):
        with files.locked(lock, "counting"):
            refused = pytest.raises(UserError, match=f"counting is being done by another.*{lock}")
            with refused, files.locked(lock, "counting"):
                pytest.fail("two were let in")
        assert list(lock.parent.iterdir()) == []
