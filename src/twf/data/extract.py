"""Unpack archives where nothing can leave the folder, and no half of one can be taken for it."""

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
from twf.errors import UserError

SCRATCH = files.ARCHIVES / ".extracted"
PIECE = 2**20  # bytes read at once


@contextlib.contextmanager
def extracted(*archives: Path, scratch: Path = SCRATCH) -> Iterator[Path]:
    """Yield a folder with the content of `archives`; it is removed when the block ends.

    `.tar.gz`, `.tgz` and `.zip` are unpacked; any other file is linked to, under its own name.
    Raises `UserError` that names the archive where it is missing, cut short, or has a member that
    could write outside the folder, and where the disk is full; nothing of it is left then. Another
    process that needs the same archives waits. What killed processes left is removed.
    """
    paths = "\n".join(str(archive.resolve()) for archive in archives)
    mark = hashlib.sha256(paths.encode()).hexdigest()[:8]
    folder = scratch / f"{archives[0].name}.{mark}"
    lock = folder.with_name(f"{folder.name}.lock")
    with files.locked(lock, f"it has unpacked {archives[0]}"):
        _tidy(scratch)
        _remove(folder)
        try:
            partial = _partial(folder)
            for archive in archives:
                with files.writing(partial):
                    partial.mkdir(exist_ok=True)
                _extract(archive, partial)
            partial.rename(folder)
            yield folder
        finally:
            _remove(folder)


def _extract(archive: Path, folder: Path) -> None:
    """Put the content of one archive, or a link to what is none, into `folder`."""
    if not (archive.is_file() and os.access(archive, os.R_OK)):
        remedy = f"`twf data fetch {archive.parent.name}` brings it"
        raise UserError(f"no archive {archive} that can be read: {remedy}")
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
            with tarfile.open(fileobj=stream, mode="r:") as members:
                for member in members:
                    known = member.isfile() or member.isdir() or member.issym() or member.islnk()
                    _check(archive, member.name, None if known else "a device")
                    if member.issym() or member.islnk():
                        _check(archive, member.linkname, None, f"{member.name} links to ")
                    members.extract(member, folder, filter="data")
            while stream.read(PIECE):  # to the end, where the checksum of the whole is
                pass
    except gzip.BadGzipFile as error:  # an OSError, as those of a full disk are
        raise EOFError(str(error)) from None


def _extract_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as members:
        for member in members.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            known = kind in (0, stat.S_IFREG, stat.S_IFDIR)
            _check(archive, member.orig_filename, None if known else "a link or a device")
            members.extract(member, folder)


def _check(archive: Path, path: str, kind: str | None, said: str = "") -> None:
    """Refuse a path, of a member or of what it links to, that could lead out of the folder.

    No chain of links can, as long as none of them has a `..` or starts at the root.
    """
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if parts[:1] == ("/",):
        kind = "an absolute path"
    elif ".." in parts:
        kind = "a path that leads out of its folder"
    if kind is not None:
        raise _refused(archive, f"its member {said}{path} is {kind}")


def _refused(archive: Path, reason: str) -> UserError:
    return UserError(
        f"cannot unpack {archive}: {reason}; nothing of it was kept. Delete it and fetch it again "
        "(`twf data fetch`), or ask whoever made it for another one"
    )


def _partial(folder: Path) -> Path:
    """Where the folder's content lies until it is whole."""
    return folder.with_name(f"{folder.name}.partial")


def _remove(folder: Path) -> None:
    for path in (folder, _partial(folder)):
        if path.exists():
            shutil.rmtree(path)


def _tidy(scratch: Path) -> None:
    """Remove what killed processes left: folders whose lock nobody holds."""
    for lock in scratch.glob("*.lock"):
        with contextlib.suppress(Timeout), FileLock(lock, blocking=False):
            _remove(lock.with_suffix(""))
