"""Unpack archives so that nothing is written outside a folder of their own."""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from twf import files
from twf.data.checks import BrokenFileError, reading


@contextlib.contextmanager
def extracted(archives: list[Path]) -> Iterator[Path]:
    """Yield a folder with the content of some archives; it is removed in the end.

    `.tar.gz`, `.tgz` and `.zip` are unpacked; any other file is linked to, under its own name.
    Raises `BrokenFileError` that names an archive which is damaged or holds a link, and `UserError`
    where the disk is full.
    """
    prefix = f".{archives[0].parent.name}."  # of the entry, for messages
    with tempfile.TemporaryDirectory(prefix=prefix, dir=files.ARCHIVES) as folder:
        for archive in archives:
            with reading(archive, "an archive"), files.writing(f"{folder}, from {archive}"):
                _unpack(archive, Path(folder))
        yield Path(folder)


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
