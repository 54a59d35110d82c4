"""The project's folder: its file system, its disk, its clock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from twf import files
from twf.errors import UserError
from twf.forecast import disk
from twf.study import expand
from twf.study.params import Params
from twf.upkeep.doctor.check import Check

NETWORKED = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p", "fuse.")


def files_here() -> Iterator[Check]:
    """What the project's folder lies on: can it be written to, and do renames and locks hold?"""
    kind = _file_system(Path.cwd())
    try:
        with tempfile.TemporaryDirectory(dir=".", prefix=".doctor-") as scratch:
            wrong = _wrong_with_files(Path(scratch))
    except OSError as error:
        remedy = "let it be written to, or clone the project elsewhere"
        yield Check("folder", "wrong", f"{Path.cwd()}: {error.strerror}", remedy)
        return
    if wrong is not None:
        remedy = "keep the project on a local disk, or have the file system mounted with locks"
        yield Check("folder", "wrong", f"{Path.cwd()}, {kind}: {wrong}", remedy)
    elif kind.startswith(NETWORKED):
        said = f"{kind}, a network file system: others' files may show seconds late"
        remedy = "snakemake --latency-wait 60, where jobs run on other machines"
        yield Check("folder", "warning", said, remedy)
    else:
        yield Check("folder", "ok", f"{kind}, writable, with locks")


def _wrong_with_files(scratch: Path) -> str | None:
    old, new = scratch / "old", scratch / "new"
    old.write_text("old")
    new.write_text("new")
    new.replace(old)
    if old.read_text() != "new" or new.exists():
        return "a rename does not replace a file"
    with old.open("a") as one, old.open("a") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"files cannot be locked ({error.strerror})"
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return "a lock does not keep others out"
    return None


def _file_system(path: Path) -> str:
    """The kind of file system that a folder lies on, as Linux names it."""
    best = ("", "unknown")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mounted = before.split()[4].encode().decode("unicode_escape")
        if path.resolve().is_relative_to(mounted) and len(mounted) >= len(best[0]):
            best = (mounted, after.split()[0])
    return best[1]


def space(params: Params, study: str) -> Iterator[Check]:
    """Whether there is room for what remains of a study."""
    free = shutil.disk_usage(Path()).free / disk.MIB
    try:
        warning = disk.check(params, expand(params, study))
    except UserError as error:
        yield Check("disk", "wrong", str(error))
        return
    if warning is not None:
        yield Check("disk", "warning", warning)
    else:
        yield Check("disk", "ok", f"{disk.size(free)} free, enough for what remains of {study}")


def clock() -> Iterator[Check]:
    """Whether the file system's times are ours, and no file is from the future."""
    try:
        with tempfile.NamedTemporaryFile(dir=".", prefix=".doctor-") as file:
            skew = os.stat(file.name).st_mtime - time.time()
    except OSError:
        return  # `folder` says it
    if abs(skew) > files.SKEW:
        said = f"files written now have times {skew:+.0f} s from this machine's clock"
        remedy = "set both machines' clocks (NTP): Snakemake goes by modification times"
        yield Check("clock", "wrong", said, remedy)
        return
    try:
        files.refuse_from_future()
    except UserError as error:
        yield Check("clock", "wrong", str(error))
    else:
        yield Check("clock", "ok", "files have this machine's times, and none is from the future")
