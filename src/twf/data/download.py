"""One file from one address: retried, and continued from the bytes that are there already."""

from __future__ import annotations

import email.utils
import functools
import http.client
import math
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
from io import FileIO
from pathlib import Path
from typing import Any

from twf import __version__
from twf.data.registry import shown
from twf.files import writing
from twf.progress import progress

ATTEMPTS = 5  # in a row that bring nothing new, before an address is given up
PAUSE = 1.0  # seconds before the second attempt; twice as long before each one after it
LONGEST_PAUSE = 120.0  # seconds, whatever a server asks for
TIMEOUT = 30.0  # seconds without a byte
PROBE_TIMEOUT = 5.0  # seconds, where the question is only whether an address answers
MIB = 2**20


class UnavailableError(Exception):
    """This address does not give the file; its message says why."""


def download(address: str, partial: Path, size: int | None) -> bool:
    """Bring the whole file at `address` to `partial`; its `size` is in bytes, where known.

    Bytes that `partial` holds already, from an earlier call or before a connection was cut, are not
    asked for again; returns whether there were any. Raises `UnavailableError` where the address
    does not give the file after all attempts, and `UserError` where the disk does not take it;
    `partial` keeps what came so far.
    """
    failures, furthest, resumed = 0, bytes_of(partial), False
    while True:
        resumed |= bytes_of(partial) > 0
        try:
            _transfer(address, partial, size)
            return resumed
        except (OSError, http.client.HTTPException) as error:
            reason, pause = _judge(error)
        if pause is None or address.startswith("file:"):
            raise UnavailableError(reason)
        have = bytes_of(partial)
        failures = 1 if have > furthest else failures + 1
        furthest = max(furthest, have)
        if failures == ATTEMPTS:
            raise UnavailableError(f"{reason}, {ATTEMPTS} times in a row")
        pause = min(max(pause, PAUSE * 2 ** (failures - 1)), LONGEST_PAUSE)
        print(f"{shown(address)}: {reason}; again in {pause:.0f} s", file=sys.stderr, flush=True)
        time.sleep(pause)


def answers(address: str, size: int | None) -> bool:
    """Whether `address` offers a file of this size now: one byte is asked for, once."""
    try:
        with _ask(address, {"Range": "bytes=0-0"}, PROBE_TIMEOUT) as response:
            total = _extent(response)[1]
    except (OSError, http.client.HTTPException):
        return False
    return size is None or total is None or total == size


def bytes_of(partial: Path) -> int:
    """How much has been fetched so far, in bytes."""
    return partial.stat().st_size if partial.exists() else 0


def _transfer(address: str, partial: Path, size: int | None) -> None:
    """One request, for what `partial` lacks."""
    have = bytes_of(partial)
    if size is not None and have >= size:
        return  # stopped before its check, which follows
    try:
        response = _ask(address, {"Range": f"bytes={have}-"} if have else {}, TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            return  # the server has no more bytes: the checksum tells whether that is all
        raise
    with response:
        start, total = _extent(response)
        if start not in (0, have):
            partial.unlink(missing_ok=True)
            raise ConnectionError("the server sent another part than asked for; starting over")
        if None not in (size, total) and size != total:
            raise UnavailableError(f"it has {total} bytes there, expected {size}")
        with writing(partial):
            file = partial.open("ab" if start else "wb", buffering=0)  # some servers ignore Range
        with file:
            _store(response, file, start, size or total, shown(address))


def _store(response: Any, file: FileIO, have: int, total: int | None, source: str) -> None:
    """Append the response to `file`, which holds `have` bytes, until it holds `total`."""
    path = Path(file.name)
    in_mib = None if total is None else math.ceil(total / MIB)
    with progress(f"{path.stem} (MiB)", in_mib) as advance:
        advance(math.ceil(have / MIB), source)
        while piece := response.read1(MIB):
            with writing(path):
                rest = memoryview(piece)
                while rest:
                    rest = rest[file.write(rest) :]
            before, have = have, have + len(piece)
            if steps := math.ceil(have / MIB) - math.ceil(before / MIB):
                advance(steps, source)
            if total is not None and have > total:
                path.unlink()
                raise UnavailableError(f"it has more bytes than the {total} expected")
    if total is not None and have < total:
        raise ConnectionError(f"the connection was cut after {have} of {total} bytes")


def _ask(address: str, headers: dict[str, str], timeout: float) -> Any:
    """The open response to a request for `address`."""
    headers |= {"User-Agent": f"twf/{__version__}", "Accept-Encoding": "identity"}
    request = urllib.request.Request(address, headers=headers)
    return urllib.request.urlopen(request, timeout=timeout, context=_certificates())


@functools.cache
def _certificates() -> ssl.SSLContext:
    """The system's trusted certificates, which take long to read."""
    return ssl.create_default_context()


def _extent(response: Any) -> tuple[int | None, int | None]:
    """The position of the first byte sent, and the bytes of the whole file; None where not said."""
    if response.status != 206:  # the whole file; a `file:` address has no status
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    content_range = response.headers.get("Content-Range", "")
    stated = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range)
    if stated is None:
        return None, None
    return int(stated[1]), None if stated[2] == "*" else int(stated[2])


def _judge(error: Exception) -> tuple[str, float | None]:
    """Why an attempt failed, and the least pause in seconds before another; None if in vain."""
    if isinstance(error, urllib.error.HTTPError):
        again = error.code in (408, 429) or error.code >= 500
        asked = _seconds(error.headers.get("Retry-After", "")) if again else None
        return f"HTTP status {error.code} {error.reason}", asked
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message})", None
    return str(reason) or type(reason).__name__, 0.0


def _seconds(retry_after: str) -> float:
    """The seconds of a Retry-After header, which holds seconds or a date; 0 where there is none."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
