"""Fetch and unpack the registry's archives: `archives/NAME/FILE`, each checked, each once."""

import contextlib
import json
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlretrieve

from twf import files
from twf.data.formats import reading
from twf.data.registry import Entry, File
from twf.errors import UserError


def fetch(name: str, entry: Entry) -> None:
    """Bring every file of the registry's entry `name` to `archives/NAME/FILE`, checked.

    A file that exists is checked and kept. Raises `UserError` where one has another checksum, or
    where no address gives the right one. `checked.json` is written last.
    """
    for file_name, file in entry.files.items():
        path = files.archive_folder(name) / file_name
        if not path.exists():
            _download(path, file)
    verified(name, entry)
    checked = {name: file.checksum for name, file in entry.files.items()}
    files.write_text(files.receipt_file(name), json.dumps(checked, indent=2) + "\n")


def verified(name: str, entry: Entry) -> list[Path]:
    """The files of an entry. Raises `UserError` where one is missing or has another checksum."""
    import pooch

    paths = [files.archive_folder(name) / file_name for file_name in entry.files]
    for path, file in zip(paths, entry.files.values(), strict=True):
        if not path.is_file():
            raise UserError(
                f"{path} is missing: `twf data fetch {name}`, or put it there yourself; or `twf "
                "data import` takes the images from a file of yours"
            )
        algorithm, expected = file.checksum.split(":")
        actual = pooch.file_hash(str(path), alg=algorithm)
        if actual != expected:
            raise UserError(
                f"{path} is not the file of the registry: its {algorithm} is {actual}, expected "
                f"{expected}; move or delete it, then `twf data fetch {name}`"
            )
    return paths


def _download(path: Path, file: File) -> None:
    """Bring one file to `path` from the first address that gives the right one."""
    import pooch
    import requests

    http = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        timeout=30,  # seconds without a byte
        headers={"Accept-Encoding": "identity"},  # some servers would have .tar.gz unpacked
    )
    failures = []
    for address in file.addresses:
        # pooch does not know the files of a lab's disk
        on_disk = address.startswith("file:")
        downloader = (lambda url, output, _: urlretrieve(url, output)) if on_disk else http
        with files.writing(path):
            try:
                pooch.retrieve(address, file.checksum, path.name, path.parent, None, downloader)
                return
            except (requests.RequestException, URLError, ValueError) as error:
                failures.append(f"{address}: {error}")
    raise UserError(
        f"cannot fetch {path}:\n  "
        + "\n  ".join(failures)
        + f"\n`twf data fetch {path.parent.name}` tries again; or put the file there yourself"
    )


@contextlib.contextmanager
def extracted(archives: list[Path]) -> Iterator[Path]:
    """Yield a folder with the content of some archives; it is removed in the end.

    `.tar.gz`, `.tgz` and `.zip` are unpacked; any other file is linked to, under its own name.
    Raises `UserError` that names an archive which is damaged or holds a link.
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
                    raise UserError(f"{archive} holds a link or a device: {member.name}")
                members.extract(member, folder, filter="data")
    elif archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as members:
            for name in members.namelist():  # links become plain files
                members.extract(name, folder)  # without `..` and leading slashes
    else:
        (folder / archive.name).symlink_to(archive.resolve())
