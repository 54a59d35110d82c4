"""Keys that are none, for the environment of a test, and where they came to be."""

from pathlib import Path

import pyarrow.parquet as pq

KEYS = {
    "WANDB_API_KEY": "fakewandb0123456789abcdef0123456789abcdef",
    "AWS_ACCESS_KEY_ID": "FAKEAWSID0123456789",
    "AWS_SECRET_ACCESS_KEY": "fakeaws/0123456789abcdef0123456789abcdef",
}


def has_key(text: str) -> bool:
    """Whether one of `KEYS` is in a text."""
    return any(key in text for key in KEYS.values())


def files_with_keys(folder: Path) -> list[Path]:
    """The files anywhere in a folder with one of `KEYS` in their content or name."""

    def content(path: Path) -> str:
        if path.suffix == ".parquet" and path.stat().st_size > 100:  # it is not torn
            table = pq.read_table(path)
            return f"{table.schema.metadata}{table.to_pylist()}"
        return path.read_bytes().decode("latin-1")

    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if has_key(str(path) + content(path))]
