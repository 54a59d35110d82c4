"""Unpack archives so that nothing is written outside a folder of their own."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from twf import files
from twf.data.checks import BrokenFileError, reading

SCRATCH = files.ARCHIVES / ".extracted"


@contextlib.contextmanager
def extracted(name: str, archives: list[Path]) -> Iterator[Path]:
    """Yield a folder with the content of the archives of entry `name`; it is removed in the end.

    `.tar.gz`, `.tgz` and `.zip` are unpacked; any other file is linked to, under its own name.
    Raises `BrokenFileError` that names an archive which is damaged or holds a link, and `UserError`
    where the disk is full. Another process that needs the same entry waits. What a killed process
    left is removed.
    """
    folder = SCRATCH / name
    with files.locked(SCRATCH / f"{name}.lock", f"unpacking {name}"):
        try:
            shutil.rmtree(folder, ignore_errors=True)
            for archive in archives:
                with reading(archive, "an archive"), files.writing(f"{folder}, from {archive}"):
                    folder.mkdir(exist_ok=True)
                    _unpack(archive, folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _unpack(archive: Path, folder: Path) -> None:
    if archive.name.endswith((".tar.gz", ".tgz")):
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                # no data set needs links, which could lead out of the folder
                if not (member.isfile() or member.isdir()):
                    raise BrokenFileError(archive, f"holds a link or a device: {member.name}")
                members.extract(member, folder, filter="data")
    elif archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as members:
            for name in members.namelist():  # links become plain files
                members.extract(name, folder)  # without `..` and leading slashes
    else:
        (folder / archive.name).symlink_to(archive.resolve())
