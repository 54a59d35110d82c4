"""Fetch the official archives of the registry: `archives/NAME/FILE`, each checked, each once.

Transfers are written to `archives/.partial/NAME/`; a file gets its name when it is complete and its
checksum right. `TWF_MIRROR` names a folder or an address that is tried before the registry's.
"""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Literal

from twf import files
from twf.data.download import UnavailableError, answers, bytes_of, download
from twf.data.registry import Entry, File, check_address, shown
from twf.errors import UserError

VARIABLE = "TWF_MIRROR"


def fetch(name: str, entry: Entry) -> None:
    """Bring every file of the registry's entry `name` to `archives/NAME/FILE`, checked.

    A file that is there already is checked, and kept. Raises `UserError` where it is not the right
    one, where no address gives the right one, or where the disk is full; a further call goes on
    from what came so far. In the end `checked.json` beside the files says what was found.
    """
    for file_name, file in entry.files.items():
        place, partials = files.archive_folder(name) / file_name, _partials(name)
        if _kept(place, name, file):
            continue
        with files.locked(partials / f"{file_name}.lock", f"fetching {place}"):
            if not _kept(place, name, file):
                _fetch(place, name, file, partials)
    found = {f: file.model_dump(exclude={"addresses"}) for f, file in entry.files.items()}
    with files.atomic(files.receipt_file(name)) as receipt:
        receipt.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def status(name: str, entry: Entry) -> Literal["present", "imported", "incomplete", "missing"]:
    """Which files of an entry are there, by their sizes; their content is not read.

    `imported`: not all are, nor need they be, as its images were prepared from a user's file.
    """
    places = {files.archive_folder(name) / f: file for f, file in entry.files.items()}
    if all(_has_size(place, file) for place, file in places.items()):
        return "present"
    if imported(name) is not None:
        return "imported"
    return "incomplete" if any(map(os.path.lexists, places)) else "missing"


def imported(name: str) -> str | None:
    """The user's file that an entry's images were prepared from, while the prepared are there."""
    try:
        found = json.loads(files.receipt_file(name).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    prepared = found.get("prepared", files.data_file(name))
    return found.get("imported") if Path(prepared).exists() else None


def remaining(name: str, entry: Entry) -> int:
    """The bytes of an entry's files that are still to be fetched, where their sizes are known."""
    left = 0
    for file_name, file in entry.files.items():
        if not os.path.lexists(files.archive_folder(name) / file_name):
            partials = _partials(name).glob(f"{file_name}.????????")
            left += max(0, (file.size or 0) - max(map(bytes_of, partials), default=0))
    return left


def unreachable(name: str, entry: Entry) -> str | None:
    """Why an entry's missing files cannot be fetched now; None if they can, or none is missing.

    A folder is looked into first. Else it may take seconds: all addresses of a file are asked at
    once, each for one byte.
    """
    lost: dict[str, list[str]] = {}  # files, and where they were asked for
    with ThreadPoolExecutor() as pool:
        for file_name, file in entry.files.items():
            place = files.archive_folder(name) / file_name
            if _has_size(place, file):
                continue
            if os.path.lexists(place):
                return f"{place} does not have the size of the registry's file; move or delete it"
            addresses = _addresses(name, file_name, file)
            if any(answers(a, file.size) for a in addresses if a.startswith("file:")):
                continue
            if not any(pool.map(answers, addresses, repeat(file.size))):
                lost[file_name] = addresses
    if not lost:
        return None
    tried = ", ".join(shown(address) for addresses in lost.values() for address in addresses)
    return (
        f"cannot fetch {', '.join(lost)} of {name} from here ({tried or 'no address is known'}): "
        f"`twf data fetch {name}` on a machine with network, or name a folder that has it with "
        f"{VARIABLE}"
    )


def _partials(name: str) -> Path:
    """Where the files of an entry are on their way."""
    return files.ARCHIVES / ".partial" / name


def _fetch(place: Path, name: str, file: File, partials: Path) -> None:
    """Bring one file to its place from the first address that gives the right one."""
    failures = []
    for address in _addresses(name, place.name, file):
        # each address continues its own bytes: until the checksum, two may give different files
        mark = hashlib.sha256(address.encode()).hexdigest()[:8]
        partial = partials / f"{place.name}.{mark}"
        try:
            wrong = _bring(address, partial, file)
        except UnavailableError as error:
            wrong = str(error)
        if wrong is None:
            with files.writing(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                partial.replace(place)
            for left in partials.glob(f"{place.name}.????????"):  # of other addresses
                left.unlink()
            return
        failures.append(f"{shown(address)}: {wrong}")
    raise UserError(
        f"cannot fetch {place}:\n  "
        + ("\n  ".join(failures) or "the registry has no address of it")
        + f"\n`twf data fetch {name}` tries again, and goes on from what came so far; or put the "
        f"file there yourself, or name a folder or an address that has it with {VARIABLE}"
    )


def _bring(address: str, partial: Path, file: File) -> str | None:
    """Fetch one file and check it; what is wrong with it, or None.

    A wrong file whose transfer was continued is fetched once more from its start: the address may
    have had another file before.
    """
    for _ in range(2):
        resumed = download(address, partial, file.size)
        wrong = file.mismatch(partial)
        if wrong is None:
            return None
        partial.unlink()
        if not resumed:
            break
    return wrong


def _kept(place: Path, name: str, file: File) -> bool:
    """Whether the right file is at its place. Raises `UserError` where a wrong one is."""
    if not os.path.lexists(place):
        return False
    wrong = file.mismatch(place) if place.is_file() else "it is no file"
    if wrong is not None:
        raise UserError(
            f"{place} is not the file of the registry: {wrong}; move or delete it, then "
            f"`twf data fetch {name}`"
        )
    return True


def _has_size(place: Path, file: File) -> bool:
    return place.is_file() and file.size in (None, place.stat().st_size)


def _addresses(name: str, file_name: str, file: File) -> list[str]:
    """Where to ask for a file, in order: the mirror's two places, then the registry's addresses."""
    mirror = os.environ.get(VARIABLE)
    if not mirror:
        return file.addresses
    if "://" in mirror:
        try:
            base = check_address(mirror).rstrip("/")
        except ValueError as error:
            raise UserError(f"{VARIABLE} is {shown(repr(mirror))}: {error}") from None
    elif Path(mirror).is_dir():
        base = Path(mirror).resolve().as_uri()
    else:
        raise UserError(f"{VARIABLE} is {mirror!r}, which is no folder here; mend or unset it")
    return [f"{base}/{file_name}", f"{base}/{name}/{file_name}", *file.addresses]
