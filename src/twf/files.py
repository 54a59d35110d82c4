"""Where each node's output lies, and how it gets there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

PARAMS = Path("params.yaml")
SCHEMA = Path("workflow/schemas/params.schema.json")
PUBLISHED = Path("results/published.csv")

# Patterns, so that the Snakefile's rules (with wildcards) and the commands (with names) agree.
DATA = "data/{data}.safetensors"
CHECKPOINT = "checkpoints/{source}.safetensors"
RECORD = "results/{study}/runs/{run}.parquet"
RUNS = "results/{study}/runs.parquet"
TABLE = "results/{study}/tables/{table}"
COMPARISON = "results/{study}/comparison"
CLAIMS = "results/{study}/claims"
REPORT = "results/{study}/report.html"
LOG = "logs/{study}/{node}"

TABLE_FORMATS = ("parquet", "csv", "md", "tex")
COMPARISON_FORMATS = ("parquet", "csv", "md")  # of the claims too


def data_file(data: str) -> Path:
    """The prepared arrays of a data set."""
    return Path(DATA.format(data=data))


def checkpoint_file(source: str) -> Path:
    """The network pretrained on a source."""
    return Path(CHECKPOINT.format(source=source))


def record_file(study: str, run: str) -> Path:
    """The record of one run."""
    return Path(RECORD.format(study=study, run=run))


def runs_file(study: str) -> Path:
    """All records of a study in one table."""
    return Path(RUNS.format(study=study))


def table_file(study: str, table: str, extension: str) -> Path:
    """One table of a study, in one of `TABLE_FORMATS`."""
    return Path(TABLE.format(study=study, table=table) + f".{extension}")


def comparison_file(study: str, extension: str) -> Path:
    """The paper's cells beside a study's, in one of `COMPARISON_FORMATS`."""
    return Path(COMPARISON.format(study=study) + f".{extension}")


def claims_file(study: str, extension: str) -> Path:
    """The paper's claims on a study's cells, in one of `COMPARISON_FORMATS`."""
    return Path(CLAIMS.format(study=study) + f".{extension}")


def report_file(study: str) -> Path:
    """The study's report."""
    return Path(REPORT.format(study=study))


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without error.

    The temporary name ends in `.partial`, which `.dvcignore` keeps out of tracked folders.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def tidy_safetensors(path: Path) -> None:
    """Mend two habits of safetensors in a file that it has just written.

    It writes metadata in an order that changes from process to process, so equal data would have
    unequal checksums, and DVC would see a change where there is none: put the header's keys in
    order. It lets the owner alone read the file: give it the permissions of any new file.
    """
    umask = os.umask(0o077)  # reading it is setting it
    os.umask(umask)
    path.chmod(0o666 & ~umask)
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        ordered = text.encode().ljust(length)  # trailing spaces are part of the format
        if len(ordered) != length:
            raise ValueError(f"the header of {path} grew from {length} to {len(ordered)} bytes")
        file.seek(8)
        file.write(ordered)
