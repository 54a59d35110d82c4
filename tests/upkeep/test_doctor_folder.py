"""The project's folder, its disk and its clock, as `twf doctor` finds them."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twf import files
from twf.study.params import Params
from twf.upkeep.doctor import folder


def test_a_local_folder_is_well_and_nothing_is_left_in_it(only, tiny_project) -> None:
    before = sorted(tiny_project.iterdir())
    check = only(folder.files_here(), "folder")
    assert check.state == "ok" and "writable" in check.said
    assert only(folder.clock(), "clock").state == "ok"
    assert sorted(tiny_project.iterdir()) == before


@pytest.fixture
def read_only(tiny_project: Path) -> Iterator[Path]:
    """The project's folder, mounted so that nobody may write to it."""
    words = ["mount", "--bind", "-o", "ro", str(tiny_project), str(tiny_project)]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only a user who may mount can make a folder read-only for root")
    os.chdir(tiny_project)  # what is mounted, not what lies below
    yield tiny_project
    subprocess.run(["umount", "--lazy", str(tiny_project)], check=True)


def test_a_folder_that_cannot_be_written_to_is_wrong(only, read_only) -> None:
    check = only(folder.files_here(), "folder")
    assert check.state == "wrong" and "Read-only" in check.said and check.remedy
    assert list(folder.clock()) == []  # it cannot tell


def test_a_file_system_without_locks_is_wrong(only, tiny_project, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    check = only(folder.files_here(), "folder")
    assert check.state == "wrong" and "cannot be locked" in check.said
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert "does not keep others out" in only(folder.files_here(), "folder").said


def test_a_network_file_system_is_told(only, tiny_project, monkeypatch) -> None:
    monkeypatch.setattr(folder, "_file_system", lambda _: "nfs4")
    check = only(folder.files_here(), "folder")
    assert check.state == "warning" and "nfs4" in check.said and "--latency-wait" in check.remedy


def test_the_kind_of_a_mounted_file_system_is_known(small_disk) -> None:
    assert folder._file_system(small_disk) == "tmpfs"
    assert folder._file_system(small_disk / "deeper") == "tmpfs"
    assert folder._file_system(Path("/proc/self")) == "proc"


def test_room_is_that_of_the_study(only, tiny_project, tiny_values, monkeypatch) -> None:
    params = Params.model_validate(tiny_values)
    assert only(folder.space(params, "tiny"), "disk").state == "ok"
    usage = shutil.disk_usage(".")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    check = only(folder.space(params, "tiny"), "disk")
    assert check.state == "wrong" and "study tiny needs" in check.said


def test_a_clock_that_differs_from_the_file_systems_is_wrong(
    only, tiny_project, monkeypatch
) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 100)
    check = only(folder.clock(), "clock")
    assert check.state == "wrong" and "+100 s" in check.said and "NTP" in check.remedy


def test_files_from_the_future_are_wrong(only, tiny_inputs, tmp_path) -> None:
    """The remedy that is told mends them, also on another disk."""
    Path("data").rename(tmp_path / "elsewhere")
    Path("data").symlink_to(tmp_path / "elsewhere")
    Path("results").mkdir()
    assert only(folder.clock(), "clock").state == "ok"
    late = files.data_file("target")
    os.utime(late, (time.time() + 3600,) * 2)
    check = only(folder.clock(), "clock")
    assert check.state == "wrong" and f"times in the future (1, for example {late})" in check.said
    remedy = check.said.partition("has come: ")[2]
    subprocess.run(shlex.split(remedy), check=True)
    assert only(folder.clock(), "clock").state == "ok"
