"""The paths of all outputs, and how a file is written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from twf.errors import UserError

PARAMS = Path("params.yaml")
PRINTED = Path("results/printed.csv")
COSTS = Path("results/costs.csv")  # what recorded runs took
FINDINGS_FROM = [*sorted(map(str, Path("results/evidence").glob("*.*"))), str(PRINTED)]
FINDINGS = [f"docs/{name}" for name in ("estimates.csv", "corners.svg", "share.svg")]
ARCHIVES = Path("archives")

# Patterns, so that the Snakefile's rules (with wildcards) and the commands (with names) agree.
ARCHIVE = f"{ARCHIVES}/{{archive}}"
RECEIPT = f"{ARCHIVES}/{{archive}}/checked.json"
DATA = "data/{data}.safetensors"
CHECKPOINT = "checkpoints/{source}.safetensors"
RECORD = "results/{study}/runs/{run}.parquet"
RUNS = "results/{study}/runs.parquet"
TABLE = "results/{study}/tables/{table}"
ESTIMATES = "results/{study}/estimates"
METRICS = "results/{study}/metrics.json"
FIGURES = "results/{study}/figures"
REPORT = "results/{study}/report.html"
RUNS_PAGE = "results/{study}/runs.html"
# What decides each product that takes hours, beside it: see `twf.study.products`.
PLANS = Path("plans")
DATA_PLAN = "plans/data/{data}.json"
CHECKPOINT_PLAN = "plans/checkpoints/{source}.json"
RUN_PLAN = "plans/{study}/{run}.json"
STUDY_PLAN = "plans/{study}.json"
TABLES = "results/{study}/tables"
SEARCH = (  # every trial, and the best of each cell as input of another study
    "results/{study}/tables/trials.csv",
    "results/{study}/tables/best-hyperparameters.yaml",
)
STATE = "states/{study}/{run}/state.safetensors"  # of an unfinished run; no output of a rule

TABLES_VERSION = 6  # of the columns of tables; raised by each change, so that they are made anew
TABLE_FORMATS = ("csv", "md", "tex")
ESTIMATE_FORMATS = ("parquet", "csv")
FIGURE_FORMATS = ("svg", "csv")  # the last has the data drawn


def _path(pattern: str) -> Callable[..., Path]:
    """A function of the values of the wildcards in `pattern`, in their order, to the path."""
    wildcards = re.findall(r"{(\w+)}", pattern)
    return lambda *values: Path(pattern.format(**dict(zip(wildcards, values, strict=True))))


archive_folder = _path(ARCHIVE)  # the files of an official archive, as they were fetched
receipt_file = _path(RECEIPT)  # says that an archive was fetched, or its content imported
data_file = _path(DATA)  # the prepared arrays of a data set
checkpoint_file = _path(CHECKPOINT)  # the network pretrained on a source
record_file = _path(RECORD)
state_file = _path(STATE)
data_plan = _path(DATA_PLAN)
checkpoint_plan = _path(CHECKPOINT_PLAN)
run_plan = _path(RUN_PLAN)
study_plan = _path(STUDY_PLAN)
tables_folder = _path(TABLES)
figures_folder = _path(FIGURES)
runs_file = _path(RUNS)  # all records of a study in one table
table_file = _path(f"{TABLE}.{{extension}}")  # of `TABLE_FORMATS`
estimates_file = _path(f"{ESTIMATES}.{{extension}}")  # of `ESTIMATE_FORMATS`
metrics_file = _path(METRICS)  # the means of a study's cells, as DVC shows and compares them
figure_file = _path(f"{FIGURES}/{{figure}}.{{extension}}")  # of `FIGURE_FORMATS`
report_file = _path(REPORT)
runs_page = _path(RUNS_PAGE)  # a page of its own, beside the report
log_file = _path("logs/{study}/runs/{run}.log")  # of a run by Snakemake


def search_files(study: str) -> tuple[Path, ...]:
    """What a study's searches for hyperparameters found, in the order of `SEARCH`."""
    return tuple(Path(pattern.format(study=study)) for pattern in SEARCH)


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without error.

    The temporary name ends in `.partial`, which `.dvcignore` keeps out of tracked folders. Raises
    what `writing` raises.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(what: Path | str) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `UserError` that names what is written."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free some space there" if full else "make that possible"
        raise UserError(
            f"cannot write {what} ({error.strerror or error}): {remedy}, then call again"
        ) from None


@contextlib.contextmanager
def locked(path: Path, work: str, wait: bool = True) -> Iterator[None]:
    """Hold the lock file `path`, which says who holds it, while doing some `work`.

    Where another process holds it, say so and wait; raise `UserError` where `wait` is false. The
    lock of a process ends with the process, however it ends.
    """
    from filelock import FileLock, Timeout  # most commands lock nothing

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    lock = FileLock(path, fallback_to_soft=False)  # whose file would outlive a killed process
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            holder = "which has just ended"
            with contextlib.suppress(FileNotFoundError):
                holder = path.read_text(encoding="utf-8")
            said = f"{work} is being done by another process ({holder})"
            if not wait:
                raise UserError(f"{said}: wait for it, or stop it") from None
            print(f"waiting: {said}", file=sys.stderr, flush=True)
            lock.acquire()
    except OSError as error:
        raise UserError(
            f"cannot lock {path} ({error.strerror}): its file system needs locks; make "
            f"{path.parent} a link to a folder on another one"
        ) from None
    try:
        with contextlib.suppress(OSError):  # on a full disk nobody is told who holds it
            path.write_text(f"process {os.getpid()} on {os.uname().nodename}", encoding="utf-8")
        yield
    finally:
        path.unlink(missing_ok=True)  # who waits for it takes it anew
        lock.release()


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file; empty where there is none. No tensor is read.

    Raises `UserError` where this user may not read the file.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > path.stat().st_size:
                return {}
            values = json.loads(file.read(length))
    except (FileNotFoundError, ValueError):
        return {}
    except PermissionError as error:
        raise UserError(f"{path}: {error.strerror}: let this user read it") from None
    return values if isinstance(values, dict) else {}


def tidy_safetensors(path: Path) -> None:
    """Sort the header of a file that safetensors has written, and set its usual permissions.

    safetensors writes metadata in an order that changes from process to process, so equal data
    would have unequal checksums, and DVC would see a change where there is none. It also lets only
    the owner read the file.
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
