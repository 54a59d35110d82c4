"""What `twf clean` removes: logs, partial files of killed processes, what a study has replaced.

That is the saved states of what is done, and records kept when others took their place. Records,
data, checkpoints, archives and the environment are never among it, nor the state of a run that
another call goes on from. No link is followed.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from twf import files
from twf.data import inputs
from twf.data.extract import SCRATCH
from twf.errors import UserError
from twf.results import record

LOCKS = Path(".snakemake/locks")
WRITTEN = (
    "archives",
    "checkpoints",
    "data",
    "logs",
    "replaced",
    "results",
    "states",
)  # by our commands
AT_WORK = (
    "Snakemake is at work in this folder, or was killed: wait for it, or say `snakemake --unlock` "
    "if none runs"
)
IDLE = 3600.0  # seconds after which a partial file is not being written by another machine


def find() -> list[Path]:
    """The files and folders that may go."""
    found = sorted({*_logs(), *_partials(), *_states(), *Path("replaced").glob("*")})
    here = Path.cwd().resolve()
    return [path for path in found if path.resolve() == here / path and not _held(path)]


def remove(paths: list[Path]) -> None:
    """Remove what `find` gave, but for the state of a run that has started again meanwhile.

    Raises `UserError` where Snakemake is at work here, or the system refuses.
    """
    if is_locked():
        raise UserError(AT_WORK)
    for path in paths:
        with files.writing(path):
            if path.is_dir() and not _held(path):
                shutil.rmtree(path)  # links in it go, not what they lead to
            elif path.is_file():
                path.unlink(missing_ok=True)


def is_locked() -> bool:
    """Whether a Snakemake has locked this folder."""
    return LOCKS.is_dir() and any(LOCKS.iterdir())


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; what a link leads to is not counted."""
    inside = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(each.lstat().st_size for each in ([path] if path.is_file() else inside))


def _logs() -> Iterator[Path]:
    yield from (path for path in Path("logs").glob("*") if path.is_dir())
    yield from Path(".snakemake").glob("log/*.log")
    yield from Path(".snakemake").glob("twf-*.log")


def _partials() -> Iterator[Path]:
    for path in (path for top in WRITTEN for path in Path(top).rglob(".*.*.partial")):
        process = path.name.split(".")[-2]
        old = time.time() - path.lstat().st_mtime > IDLE
        if old and process.isdecimal() and not _is_running(int(process)):
            yield path
    yield from (path for path in SCRATCH.glob("*") if path.is_dir())


def _states() -> Iterator[Path]:
    for state in (path for path in Path("states").glob("*/*") if path.is_dir()):
        study, name = state.parts[1:]
        network = study == "pretrain"
        made = files.checkpoint_file(name) if network else files.record_file(study, name)
        newest = max(path.lstat().st_mtime for path in (state, *state.iterdir()))
        done = made.exists() and made.stat().st_mtime >= newest
        if done and (network or _is_of(made, state / files.state_file(study, name).name)):
            yield state


def _is_of(made: Path, state: Path) -> bool:
    """Whether a record has the parameters of a saved state; also where either cannot be read."""
    try:
        saved = json.loads(inputs.header(state)["__metadata__"]["state"])["guard"]["parameters"]
        (row,) = record.read(made, ["digest"]).to_pylist()
    except (KeyError, TypeError, ValueError, UserError):
        return True
    return bool(row["digest"] == saved)


def _held(path: Path) -> bool:
    """Whether another process holds the lock of a file or folder."""
    lock = path.with_name(f"{path.name.removesuffix('.partial')}.lock")
    try:
        with (
            FileLock(lock, blocking=False, fallback_to_soft=False)
            if lock.exists()
            else nullcontext()
        ):
            return False
    except Timeout:
        return True


def _is_running(process: int) -> bool:
    with suppress(PermissionError):  # another user's
        try:
            os.kill(process, 0)  # no signal: it asks
        except (ProcessLookupError, OverflowError):
            return False
    return True
