"""The paths of all outputs, and how a file is written completely or not at all."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from twf.errors import UserError

PARAMS = Path("params.yaml")
PRINTED = Path("results/printed.csv")
COSTS = Path("results/costs.csv")  # what recorded runs took
ARCHIVES = Path("archives")

TABLES_VERSION = 12  # of the columns of tables; raised by each change, so that they are made anew
TABLE_FORMATS = ("csv", "md")
ESTIMATE_FORMATS = ("parquet", "csv")
PLANS = Path("plans")


def _path(pattern: str) -> Callable[..., Path]:
    """A function from wildcards' values in order, in rules `"{study}"` and so on, to the path."""
    wildcards = re.findall(r"{(\w+)}", pattern)
    return lambda *values: Path(pattern.format(**dict(zip(wildcards, values, strict=True))))


archive_folder = _path("archives/{archive}")  # the files of an official archive, as fetched
receipt_file = _path("archives/{archive}/checked.json")  # says that an archive was fetched
data_file = _path("data/{data}.safetensors")  # the prepared arrays of a data set
checkpoint_file = _path("checkpoints/{source}.safetensors")  # the network pretrained on a source
record_file = _path("results/{study}/runs/{run}.parquet")
state_file = _path("states/{study}/{run}/state.safetensors")  # of an unfinished run
# What decides each product that takes hours, beside it: see `twf.study.products`.
data_plan = _path("plans/data/{data}.json")
checkpoint_plan = _path("plans/checkpoints/{source}.json")
run_plan = _path("plans/{study}/{run}.json")
study_plan = _path("plans/{study}.json")
runs_file = _path("results/{study}/runs.parquet")  # all records of a study in one table
tables_folder = _path("results/{study}/tables")
table_file = _path("results/{study}/tables/{table}.{extension}")  # of `TABLE_FORMATS`
estimates_file = _path("results/{study}/estimates.{extension}")  # of `ESTIMATE_FORMATS`
metrics_file = _path("results/{study}/metrics.json")  # the means of cells, for DVC to compare
figures_folder = _path("results/{study}/figures")
figure_file = _path("results/{study}/figures/{figure}.{extension}")  # svg; csv with the data drawn
report_file = _path("results/{study}/report.html")
runs_page = _path("results/{study}/runs.html")  # a page of its own, beside the report
log_file = _path("logs/{study}/runs/{run}.log")  # of a run by Snakemake


def search_files(study: str) -> tuple[Path, Path]:
    """Every trial of a study's searches, and the best of each cell as input of another study."""
    folder = tables_folder(study)
    return folder / "trials.csv", folder / "best-hyperparameters.yaml"


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without error.

    Its name ends in `.partial`, which git and DVC pass over. Raises what `writing` raises.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text, in UTF-8, completely or not at all. Raises `UserError` where that fails."""
    with atomic(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def writing(what: Path | str) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `UserError` that names what is written."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {what} ({error.strerror or error}): make that possible, then call again"
        ) from None


@contextlib.contextmanager
def locked(path: Path, work: str) -> Iterator[None]:
    """Hold the lock file `path`, at most to the process's end, while doing some `work`.

    Raises `UserError` where another process holds it.
    """
    from filelock import FileLock, Timeout  # most commands lock nothing

    lock = FileLock(path, blocking=False, fallback_to_soft=False)  # a soft one outlives a kill
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(
                f"{work} is being done by another process, which holds {path}: wait for it, or "
                "stop it"
            ) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hex; of one that did not change, it is read once."""
    about = path.stat()
    return _sha256(path.absolute(), about.st_size, about.st_mtime_ns)


@cache
def _sha256(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def about(path: Path, key: str = "about") -> dict[str, Any]:
    """What a safetensors file says of itself under a key; empty where it is damaged or silent.

    No tensor is read, but a file that ends before its last tensor is found out.
    """
    try:
        with safe_open(path, framework="np") as file:
            return dict(json.loads((file.metadata() or {})[key]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return {}
