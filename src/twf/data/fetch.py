"""Fetch the official archives of the registry: `archives/NAME/FILE`, each checked, each once.

pooch downloads, tries again, and compares checksums. `TWF_MIRROR` names a folder or an address that
is asked before the registry's addresses.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Literal
from urllib.error import URLError
from urllib.request import urlretrieve

from twf import files
from twf.data.registry import ADDRESS, Entry, File, shown
from twf.errors import UserError

VARIABLE = "TWF_MIRROR"
RETRIES = 2  # of each address, after pauses of one and two seconds
TIMEOUT = 30  # seconds without a byte


def fetch(name: str, entry: Entry) -> None:
    """Bring every file of the registry's entry `name` to `archives/NAME/FILE`, checked.

    A file that exists is checked and kept. Raises `UserError` where one has another checksum, where
    no address gives the right one, or where the disk is full. `checked.json` is written last.
    """
    with files.locked(files.ARCHIVES / f".{name}.lock", f"fetching {name}"):
        for file_name, file in entry.files.items():
            path = files.archive_folder(name) / file_name
            if not os.path.lexists(path):
                _download(path, name, file)
        verified(name, entry)
        checked = {key: {"checksum": file.checksum} for key, file in entry.files.items()}
        with files.atomic(files.receipt_file(name)) as receipt:
            receipt.write_text(json.dumps(checked, indent=2) + "\n", encoding="utf-8")


def verified(name: str, entry: Entry) -> list[Path]:
    """The files of an entry. Raises `UserError` where one is missing or has another checksum."""
    import pooch

    paths = []
    for file_name, file in entry.files.items():
        path = files.archive_folder(name) / file_name
        if not path.is_file():
            raise UserError(
                f"{path} is missing, or no file: move or delete what is there, then `twf data "
                f"fetch {name}`; or `twf data import` takes the images from a file of yours"
            )
        algorithm, expected = file.checksum.split(":")
        actual = pooch.file_hash(str(path), alg=algorithm)
        if actual != expected:
            raise UserError(
                f"{path} is not the file of the registry: its {algorithm} is {actual}, expected "
                f"{expected}; move or delete it, then `twf data fetch {name}`"
            )
        paths.append(path)
    return paths


def status(name: str, entry: Entry) -> Literal["present", "imported", "missing"]:
    """Whether all files of an entry exist, by their sizes; their content is not read.

    `imported`: they are not needed, as the images were prepared from a user's file.
    """
    paths = {files.archive_folder(name) / key: file.size for key, file in entry.files.items()}
    if all(path.is_file() and size in (None, path.stat().st_size) for path, size in paths.items()):
        return "present"
    return "missing" if imported(name) is None else "imported"


def imported(name: str) -> str | None:
    """The user's file that an entry's images were prepared from, while the prepared file exists."""
    try:
        receipt = json.loads(files.receipt_file(name).read_bytes())
        return receipt["imported"] if Path(receipt["prepared"]).exists() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _download(path: Path, name: str, file: File) -> None:
    """Bring one file to `path` from the first address that gives the right one."""
    partial = files.ARCHIVES / ".partial" / name
    failures = []
    with files.writing(path):
        shutil.rmtree(partial, ignore_errors=True)  # of a killed process
        try:
            for address in _addresses(name, path.name, file):
                failure = _fetch_from(address, partial / path.name, file)
                if failure is None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    (partial / path.name).replace(path)
                    return
                failures.append(f"{shown(address)}: {failure}")
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    raise UserError(
        f"cannot fetch {path}:\n  "
        + ("\n  ".join(failures) or "the registry has no address of it")
        + f"\n`twf data fetch {name}` tries again; or put the file there yourself, or name a "
        f"folder or an address that has it with {VARIABLE}"
    )


def _fetch_from(address: str, path: Path, file: File) -> str | None:
    """Bring the file at one address to `path`; why that failed, or None."""
    import pooch
    import requests

    print(f"fetching {path.name} from {shown(address)}", file=sys.stderr, flush=True)
    pooch.get_logger().setLevel("WARNING")  # its other lines would show what `shown` hides
    source = pooch.create(
        path=path.parent,
        base_url="",
        registry={path.name: file.checksum},
        urls={path.name: address},
        retry_if_failed=RETRIES,
    )
    downloader = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        timeout=TIMEOUT,
        headers={"Accept-Encoding": "identity"},  # some servers would have .tar.gz unpacked
    )
    if address.startswith("file:"):  # of a mirror on a disk, which pooch does not know
        downloader = lambda url, output, _: urlretrieve(url, output)  # noqa: E731
    try:
        source.fetch(path.name, downloader=downloader)
    except (requests.RequestException, URLError, ValueError) as error:
        return shown(str(error))
    return None


def _addresses(name: str, file_name: str, file: File) -> list[str]:
    """Where to ask for a file, in order: the mirror's two places, then the registry's addresses."""
    mirror = os.environ.get(VARIABLE)
    if not mirror:
        return file.addresses
    if Path(mirror).is_dir():
        mirror = Path(mirror).resolve().as_uri()
    if not re.match(ADDRESS, mirror):
        raise UserError(
            f"{VARIABLE} is {shown(mirror)!r}, which is no folder here, and no https://, http:// "
            "or file:// address without user name and password; mend or unset it"
        )
    base = mirror.rstrip("/")
    return [f"{base}/{file_name}", f"{base}/{name}/{file_name}", *file.addresses]
