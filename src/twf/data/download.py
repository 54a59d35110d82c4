"""One file from one address: retried, and continued from the bytes that are there already."""

from __future__ import annotations

import contextlib
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twf import __version__
from twf.data.registry import shown
from twf.files import writing
from twf.progress import Advance, progress

ATTEMPTS = 5  # in a row that bring nothing new, before an address is given up
PAUSE = 1.0  # seconds before the second attempt; twice as long before each one after it
LONGEST_PAUSE = 120.0  # seconds, whatever a server asks for
TIMEOUT = 30.0  # seconds without a byte
PROBE_TIMEOUT = 5.0  # seconds, where the question is only whether an address answers
PIECE = 2**20  # bytes read at once
MIB = 2**20


class UnavailableError(Exception):
    """This address does not give the file; its message says why."""


class _CutError(Exception):
    """The transfer ended before the file did; to ask for the rest is worth an attempt."""


def download(address: str, partial: Path, size: int | None) -> None:
    """Bring the file at `address` to `partial`, whole; its `size` in bytes where known.

    Bytes that `partial` holds from an earlier call with this address are not asked for again.
    Raises `UnavailableError` where the address does not give the file after all attempts, and
    `UserError` where the disk does not take it; what came so far stays in `partial`.
    """
    failures, furthest = 0, bytes_of(partial)
    while True:
        try:
            _transfer(address, partial, size)
            return
        except (_CutError, OSError, http.client.HTTPException) as error:
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
    """Whether `address` gives a file of this size now: one byte is asked for, once."""
    try:
        with _ask(address, {"Range": "bytes=0-0"}, PROBE_TIMEOUT) as response:
            total = _total(response)
    except (OSError, http.client.HTTPException):
        return False
    return size is None or total is None or total == size


def discard(partial: Path) -> None:
    """Remove a partial file, and what was kept beside it."""
    partial.unlink(missing_ok=True)
    _validator_file(partial).unlink(missing_ok=True)


def bytes_of(partial: Path) -> int:
    """How much has been fetched so far, in bytes."""
    return partial.stat().st_size if partial.exists() else 0


def _transfer(address: str, partial: Path, size: int | None) -> None:
    """One request, for what `partial` lacks."""
    have = bytes_of(partial)
    if size is not None and have > size:
        discard(partial)
        have = 0
    if have and have == size:
        return  # stopped after its last byte, before its check
    headers = {}
    if have:
        headers["Range"] = f"bytes={have}-"
        with contextlib.suppress(FileNotFoundError):
            headers["If-Range"] = _validator_file(partial).read_text()
    try:
        response = _ask(address, headers, TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return  # all of it was there, which only the server knew
        discard(partial)
        raise _CutError("the server has no bytes after those fetched; starting over") from None
    with response:
        start = _start(response)
        if start not in (0, have):
            discard(partial)
            raise _CutError("the server sent another part than asked for; starting over")
        total = _total(response)
        if None not in (size, total) and size != total:
            raise UnavailableError(f"it has {total} bytes there, expected {size}")
        if start == 0:  # also where the server ignores Range, or has a newer file
            discard(partial)
            with writing(partial):
                partial.parent.mkdir(parents=True, exist_ok=True)
                if validator := _validator(response):
                    _validator_file(partial).write_text(validator)
        _store(response, partial, start, size or total, address)


def _store(response: Any, partial: Path, start: int, total: int | None, address: str) -> None:
    """Append the response to `partial`, which has `start` bytes, until it has `total`."""
    said = shown(address)
    with _progress(partial.stem, said, total) as advance:
        advance(math.ceil(start / MIB), said)
        with writing(partial):
            file = partial.open("ab", buffering=0)  # what is counted is on the disk
        with file:
            have = start
            while piece := response.read1(PIECE):
                with writing(partial):
                    rest = memoryview(piece)
                    while rest:
                        rest = rest[file.write(rest) :]
                before, have = have, have + len(piece)
                if steps := math.ceil(have / MIB) - math.ceil(before / MIB):
                    advance(steps, said)
                if total is not None and have > total:
                    discard(partial)
                    raise UnavailableError(f"it has more bytes than the {total} expected")
        if total is not None and have < total:
            raise _CutError(f"the connection was cut after {have} of {total} bytes")


@contextlib.contextmanager
def _progress(name: str, said: str, total: int | None) -> Iterator[Advance]:
    """Progress in MiB, where it is known how many there are."""
    if total is None:
        print(f"{name} from {said}, of unknown size", file=sys.stderr, flush=True)
        yield lambda steps, note: None
        return
    with progress(f"{name} (MiB)", math.ceil(total / MIB)) as advance:
        yield advance


def _ask(address: str, headers: dict[str, str], timeout: float) -> Any:
    """The open response to a request for `address`."""
    headers |= {"User-Agent": f"twf/{__version__}", "Accept-Encoding": "identity"}
    request = urllib.request.Request(address, headers=headers)
    return urllib.request.urlopen(request, timeout=timeout, context=_certificates())


@functools.cache
def _certificates() -> ssl.SSLContext:
    """The system's trusted certificates, which take long to read."""
    return ssl.create_default_context()


def _start(response: Any) -> int | None:
    """The first byte that is sent; none where the server does not say it rightly."""
    if response.status != 206:
        return 0  # the whole file; a `file:` address has no status
    stated = _content_range(response)
    return int(stated[1]) if stated else None


def _total(response: Any) -> int | None:
    """The bytes of the whole file, where the server says it."""
    if response.status == 206:
        stated = _content_range(response)
        return int(stated[2]) if stated and stated[2] != "*" else None
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _content_range(response: Any) -> re.Match[str] | None:
    return re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))


def _validator(response: Any) -> str | None:
    """What `If-Range` takes: a strong ETag, or else the date of the last change."""
    etag: str = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified")


def _validator_file(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.validator")


def _judge(error: Exception) -> tuple[str, float | None]:
    """Why an attempt failed, and the least pause in seconds before another; none where in vain."""
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
