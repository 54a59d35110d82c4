"""Keys that are none, for the environment of a test, and where they came to be."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow.parquet as pq
from wandb_files import stored_records

KEYS = {
    "WANDB_API_KEY": "fakewandb0123456789abcdef0123456789abcdef",
    "AWS_ACCESS_KEY_ID": "FAKEAWSID0123456789",
    "AWS_SECRET_ACCESS_KEY": "fakeaws/0123456789abcdef0123456789abcdef",
}


def files_with_keys(folder: Path) -> list[str]:
    """The files anywhere in a folder with one of `KEYS` in their content or name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if has_key(str(path).encode() + content(path))]


def has_key(text: bytes | str) -> bool:
    """Whether one of `KEYS` is in a text."""
    found = text.encode() if isinstance(text, str) else text
    return any(key.encode() in found for key in KEYS.values())


def content(path: Path) -> bytes:
    """What a file says, where it is compressed or cut into blocks too."""
    raw = path.read_bytes()
    if raw.startswith(b"PAR1") and raw[4:].endswith(b"PAR1"):  # it is not torn
        table = pq.read_table(path)
        return raw + f"{table.schema.metadata}{table.to_pylist()}".encode()
    if raw.startswith(b"\x1f\x8b"):
        return raw + gzip.decompress(raw)
    if path.suffix == ".wandb":
        return raw + b"".join(record.SerializeToString() for record in stored_records(path))
    return raw
