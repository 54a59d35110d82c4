"""What is left over in the project's folder: found by kind, shown, and removed when asked.

Data, checkpoints and what belongs to planned runs are never among it. Nothing outside the folder
is looked at, and no link is followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from twf import files
from twf.data import registry
from twf.data.extract import SCRATCH
from twf.errors import UserError
from twf.results.status import plans
from twf.study import Plan
from twf.study.params import Params

LOCKS = Path(".snakemake/locks")
OF_STUDIES = ("logs", "results", "states")  # folders with a folder for each study
MADE = (*OF_STUDIES, "archives", "checkpoints", "data")
AT_WORK = (
    "Snakemake is at work in this folder, or was killed: wait for it, or say `snakemake --unlock` "
    "if none runs"
)
IDLE = 3600.0  # seconds after which a partial file is not being written by another machine


class Scope(NamedTuple):
    """What is planned."""

    params: Params
    plans: dict[str, Plan]  # of all studies but those that wait for the result of a search

    def has(self, study: str, run: str) -> bool:
        """Whether a run is planned, or may be by a study that cannot be planned yet."""
        if study in self.plans:
            return run in self.plans[study].runs
        return study in self.params.studies


class Item(NamedTuple):
    """A file or a folder that may go."""

    kind: str  # of `FINDERS`
    path: Path
    size: int  # bytes


def find(params: Params, study: str | None, kinds: Collection[str] = ()) -> list[Item]:
    """What may go, of these kinds, or of all but archives: of one study, or of all and of none.

    Raises `UserError` where there is no such study or kind.
    """
    if study is not None:
        params.named_study(study)
    for kind in kinds:
        if kind not in FINDERS:
            raise UserError(f"no kind {kind!r}; there is {', '.join(FINDERS)}")
    kinds = kinds or [kind for kind in FINDERS if kind != "archives"]  # which took long to fetch
    scope = Scope(params, plans(params))
    items = []
    for kind in dict.fromkeys(kinds):
        for path in sorted(set(FINDERS[kind](scope))):
            if study in (None, _study(path)) and _is_ours(path):
                with _unless_held(path) as free:
                    items += [Item(kind, path, _size(path))] if free else []
    return items


def remove(items: list[Item]) -> None:
    """Remove what `find` gave; the state of a run that has started again meanwhile stays.

    Raises `UserError` where Snakemake is at work here, or the system refuses.
    """
    if is_locked():
        raise UserError(AT_WORK)
    for path in (item.path for item in items):
        with _unless_held(path) as free, files.writing(path):
            if free and path.is_dir():
                shutil.rmtree(path)  # links in it go, not what they lead to
            elif free:
                path.unlink(missing_ok=True)


def is_locked() -> bool:
    """Whether a Snakemake has locked this folder."""
    return LOCKS.is_dir() and any(LOCKS.iterdir())


def show(items: list[Item], removed: bool) -> None:
    """Print each item with its size, and the sums."""
    sizes: Counter[str] = Counter()
    for item in items:
        print(f"{item.size:>15,}  {item.kind:<8}  {item.path}")
        sizes[item.kind] += item.size
    parts = ", ".join(f"{kind} {size:,} bytes" for kind, size in sizes.items())
    word = "removed" if removed else "would be removed"
    print(f"{word}: {len(items)} items, {sizes.total():,} bytes{f' ({parts})' if parts else ''}")
    if items and not removed:
        print(AT_WORK if is_locked() else "next: the same with --yes")


def _records(scope: Scope) -> Iterator[Path]:
    """Records of runs that no study plans any more."""
    for path in Path("results").glob("*/runs/*.parquet"):
        if not scope.has(path.parts[1], path.stem):
            yield path


def _states(scope: Scope) -> Iterator[Path]:
    """States of what is not planned any more, or has been made since."""
    for state in (path for path in Path("states").glob("*/*") if path.is_dir()):
        study, name = state.parts[1:]
        if study == "pretrain":
            planned, made = name in scope.params.sources, files.checkpoint_file(name)
        else:
            planned, made = scope.has(study, name), files.record_file(study, name)
        newest = max(path.lstat().st_mtime for path in (state, *state.iterdir()))
        if not planned or (made.exists() and made.stat().st_mtime >= newest):
            yield state


def _partials(scope: Scope) -> Iterator[Path]:
    """What killed processes had not finished; what may still be written stays."""
    for path in (path for top in MADE for path in Path(top).rglob(".*.*.partial")):
        process = path.name.split(".")[-2]
        ended = process.isdecimal() and not Path("/proc", process).exists()
        if ended and time.time() - path.lstat().st_mtime > IDLE:
            yield path
    yield from (path for path in SCRATCH.glob("*") if path.is_dir())


def _logs(scope: Scope) -> Iterator[Path]:
    """What jobs said, their times, and what Snakemake and the server of runs said."""
    yield from (path for path in Path("logs").glob("*") if path.is_dir())
    yield from Path(".snakemake").glob("log/*.log")
    yield from Path(".snakemake").glob("twf-*.log")


def _wandb(scope: Scope) -> Iterator[Path]:
    """Offline runs that `wandb sync` has sent, as its mark beside them says."""
    for mark in Path("wandb").glob("offline-run-*/*.wandb.synced"):
        yield mark.parent


def _archives(scope: Scope) -> Iterator[Path]:
    """Official archives from which all has been made that `params.yaml` makes from them."""
    made = [
        (dataset.archive, files.data_file(name))
        for name, dataset in scope.params.datasets.items()
        if dataset.reader == "official"
    ]
    for name, source in scope.params.sources.items():
        if source.weights and (archive := registry.of_file(Path(source.weights))):
            made.append((archive, files.checkpoint_file(name)))
    for wanted in {archive for archive, _ in made}:
        folder = files.archive_folder(wanted)
        if folder.is_dir() and all(file.exists() for archive, file in made if archive == wanted):
            yield folder


FINDERS: dict[str, Callable[[Scope], Iterator[Path]]] = {
    "records": _records,
    "states": _states,
    "partials": _partials,
    "logs": _logs,
    "wandb": _wandb,
    "archives": _archives,
}


def _study(path: Path) -> str | None:
    """The study that a path belongs to."""
    return path.parts[1] if path.parts[0] in OF_STUDIES else None


def _is_ours(path: Path) -> bool:
    """Whether it lies in this folder, is a file or folder itself, and no link led to it."""
    return path.resolve() == Path.cwd().resolve() / path and (path.is_file() or path.is_dir())


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; what a link leads to is not counted."""
    inside = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(each.lstat().st_size for each in ([path] if path.is_file() else inside))


@contextlib.contextmanager
def _unless_held(path: Path) -> Iterator[bool]:
    """Hold the lock of a file or folder, if it has one; False where another process holds it."""
    file = path.with_name(f"{path.name.removesuffix('.partial')}.lock")
    with contextlib.ExitStack() as held:
        try:
            if file.exists():
                held.enter_context(FileLock(file, blocking=False, fallback_to_soft=False))
        except Timeout:
            yield False
        else:
            yield True
