"""Unpack archives so that nothing is written outside the folder, and none is used in part."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from filelock import FileLock, Timeout

from twf import files
from twf.data.leftovers import passed_over
from twf.errors import UserError

SCRATCH = files.ARCHIVES / ".extracted"
PIECE = 2**20  # bytes read at once


@contextlib.contextmanager
def extracted(*archives: Path) -> Iterator[Path]:
    """Yield a folder with the content of `archives`; it is removed when the block ends.

    `.tar.gz`, `.tgz` and `.zip` are unpacked, but for what systems leave behind, which is said;
    any other file is linked to, under its own name.
    Raises `UserError` that names the archive where it is missing, cut short, or has a member that
    could write outside the folder, and where the disk is full. Another process that needs the same
    archives waits. What killed processes left is removed.
    """
    paths = "\n".join(str(archive.resolve()) for archive in archives)
    mark = hashlib.sha256(paths.encode()).hexdigest()[:8]
    folder = SCRATCH / f"{archives[0].name}.{mark}"
    with files.locked(SCRATCH / f"{folder.name}.lock", f"unpacking {archives[0]}"):
        for lock in SCRATCH.glob("*.lock"):  # a killed process holds its lock no more
            with contextlib.suppress(Timeout), FileLock(lock, blocking=False):
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with files.writing(folder):
                folder.mkdir()
            for archive in archives:
                _extract(archive, folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _extract(archive: Path, folder: Path) -> None:
    """Put the content of an archive, or a link to any other file, into `folder`."""
    if not (archive.is_file() and os.access(archive, os.R_OK)):
        raise UserError(
            f"no archive {archive} that can be read: `twf data fetch {archive.parent.name}` brings "
            "it; `twf data import` takes the images from a file of yours"
        )
    try:
        with files.writing(f"{folder}, from {archive}"):
            if archive.name.endswith((".tar.gz", ".tgz")):
                _extract_tar(archive, folder)
            elif archive.name.endswith(".zip"):
                _extract_zip(archive, folder)
            else:
                (folder / archive.name).symlink_to(archive.resolve())
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _refused(archive, f"it is damaged or cut short ({error})") from None
    except (RuntimeError, NotImplementedError) as error:  # zipfile: a password, a rare compression
        raise _refused(archive, str(error)) from None


def _extract_tar(archive: Path, folder: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise UserError(f"cannot unpack {archive} safely: this needs Python 3.11.4 or later")
    try:
        with gzip.open(archive) as stream:
            with (
                tarfile.open(fileobj=stream, mode="r:") as members,
                passed_over(archive) as passes,
            ):
                for member in members:
                    _check(archive, member.name, member.name)
                    if passes(archive / member.name):
                        continue
                    link = member.issym() or member.islnk()
                    if not (link or member.isfile() or member.isdir()):
                        raise _refused(archive, f"its member {member.name} is a device")
                    if link:
                        _check(archive, member.name, member.linkname)
                    members.extract(member, folder, filter="data")
            while stream.read(PIECE):  # to the end, where the checksum of the whole is
                pass
    except gzip.BadGzipFile as error:  # an OSError, as those of a full disk are
        raise EOFError(str(error)) from None


def _extract_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as members, passed_over(archive) as passes:
        for member in members.infolist():
            _check(archive, member.orig_filename, member.orig_filename)
            if passes(archive / member.filename):
                continue
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refused(archive, f"its member {member.orig_filename} is a link or a device")
            members.extract(member, folder)


def _check(archive: Path, member: str, path: str) -> None:
    """Refuse a member's path, or what it links to, where it could lead out of the folder.

    No chain of links can, as long as none of them has a `..` or starts at the root.
    """
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if parts[:1] == ("/",) or ".." in parts:
        raise _refused(archive, f"its member {member} leads out of its folder, to {path}")


def _refused(archive: Path, reason: str) -> UserError:
    return UserError(
        f"cannot unpack {archive}: {reason}; nothing of it was kept. Delete it and fetch it again "
        "(`twf data fetch`), or ask whoever made it for another one"
    )
