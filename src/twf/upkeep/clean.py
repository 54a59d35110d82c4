"""What is left over in the project's folder: found by kind, shown, and removed when asked.

Data, checkpoints and records of planned runs are never among it. Nothing outside the folder is
looked at, and no link is followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from twf import files
from twf.data import registry
from twf.data.extract import SCRATCH
from twf.errors import UserError
from twf.results.status import plans
from twf.study import Plan
from twf.study.params import Params

STATES = Path("states")
RESULTS = Path("results")
LOGS = Path("logs")
PRETRAINING = "pretrain"  # where a study's name is in paths of states and logs
LOCKS = Path(".snakemake/locks")
MADE = ("archives", "checkpoints", "data", "logs", "results", "states")
IDLE = 3600.0  # seconds that no other machine has written to a partial file


class Scope(NamedTuple):
    """Whose left-overs are looked for."""

    params: Params
    plans: dict[str, Plan]  # of every study that can be planned
    study: str | None  # None for all, and for what no study has any more

    def runs(self, study: str) -> Collection[str]:
        """The runs that a study plans: none where `params.yaml` has no such study."""
        return self.plans[study].runs if study in self.plans else ()

    def folders(self, top: Path) -> list[Path]:
        """The folders of studies in `top`, but for those that cannot be planned."""
        unplanned = self.params.studies.keys() - self.plans
        return [path for path in self.within(top) if path.name not in unplanned]

    def within(self, top: Path) -> list[Path]:
        """All folders in `top`, or the study's."""
        return [p for p in top.glob("*") if p.is_dir() and self.study in (None, p.name)]


class Item(NamedTuple):
    """A file or a folder that may go."""

    kind: str  # of `FINDERS`
    path: Path
    size: int  # bytes


def find(params: Params, study: str | None, kinds: Collection[str] = ()) -> list[Item]:
    """What may go, of these kinds, or of all but archives: of one study, or of any and of none.

    A study that cannot be planned, as its search has not ended yet, keeps its records and
    states. Raises `UserError` where there is no such study or kind.
    """
    if study is not None:
        params.named_study(study)
    for kind in kinds:
        if kind not in FINDERS:
            raise UserError(f"no kind {kind!r}; there is {', '.join(FINDERS)}")
    kinds = kinds or [kind for kind in FINDERS if kind != "archives"]  # which took long to fetch
    scope = Scope(params, plans(params), study)
    found = {kind: sorted(set(FINDERS[kind](scope))) for kind in dict.fromkeys(kinds)}
    return [
        Item(kind, path, _size(path))
        for kind, paths in found.items()
        for path in paths
        if _is_ours(path)
    ]


def remove(items: list[Item]) -> None:
    """Remove what `find` gave; the state of a run that has started again meanwhile stays.

    Raises `UserError` where Snakemake is at work here, or the system refuses.
    """
    if is_locked():
        raise UserError(
            "Snakemake is at work in this folder, or was killed: wait for it, or say `snakemake "
            "--unlock` if none runs"
        )
    for item in items:
        with _unless_held(item.path) as free:
            if free:
                _remove(item.path)


def is_locked() -> bool:
    """Whether a Snakemake has locked this folder."""
    return LOCKS.is_dir() and any(LOCKS.iterdir())


def show(items: list[Item], removed: bool) -> None:
    """Print each item with its size, and the sums."""
    for item in items:
        print(f"{item.size:>15,}  {item.kind:<8}  {item.path}")
    sizes: Counter[str] = Counter()
    for item in items:
        sizes[item.kind] += item.size
    parts = ", ".join(f"{kind} {size:,} bytes" for kind, size in sizes.items())
    word = "removed" if removed else "would be removed"
    print(f"{word}: {len(items)} items, {sizes.total():,} bytes{f' ({parts})' if parts else ''}")
    if items and not removed:
        print("next: the same with --yes")


def orphaned_states(params: Params) -> list[Path]:
    """Saved states of runs and sources that `params.yaml` has no more."""
    scope = Scope(params, plans(params), None)
    return sorted(state for state, made in _states(scope) if made is None)


def _records(scope: Scope) -> Iterator[Path]:
    """Records of runs that no study plans any more."""
    for folder in scope.folders(RESULTS):
        runs = scope.runs(folder.name)
        for path in (folder / "runs").glob("*.parquet"):
            if path.stem not in runs:
                yield path


def _states(scope: Scope) -> Iterator[tuple[Path, Path | None]]:
    """Each state's folder, and the output that it is for; none where nothing plans it any more."""
    for folder in scope.folders(STATES):
        for state in (path for path in folder.iterdir() if path.is_dir()):
            if folder.name == PRETRAINING:
                known = state.name in scope.params.sources
                made = files.checkpoint_file(state.name)
            else:
                known = state.name in scope.runs(folder.name)
                made = files.record_file(folder.name, state.name)
            yield state, made if known else None


def _finished_states(scope: Scope) -> Iterator[Path]:
    """States of what is no more planned, or has been made since; not of what is being done."""
    for state, made in _states(scope):
        newest = max(path.lstat().st_mtime for path in (state, *state.iterdir()))
        if made is None or (made.exists() and made.stat().st_mtime >= newest):
            with _unless_held(state) as free:
                if free:
                    yield state


def _partials(scope: Scope) -> Iterator[Path]:
    """What killed processes had not finished; what may still be written stays."""
    tops = [Path(name) for name in MADE]
    if scope.study is not None:
        tops = [top / scope.study for top in (RESULTS, STATES)]
    for top in tops:
        for folder, _, inside in os.walk(top):  # it follows no links
            for path in (Path(folder, name) for name in inside):
                match = re.fullmatch(r"\..+\.(\d+)\.partial", path.name)
                if match is None or Path("/proc", match[1]).exists():
                    continue
                if time.time() - path.lstat().st_mtime > IDLE:
                    yield path
    if scope.study is None and SCRATCH.is_dir():
        for unpacked in (path for path in SCRATCH.iterdir() if path.is_dir()):
            with _unless_held(unpacked) as free:
                if free:
                    yield unpacked


def _logs(scope: Scope) -> Iterator[Path]:
    """What jobs said, their times, and what Snakemake itself said."""
    yield from scope.within(LOGS)
    if scope.study is None:
        yield from Path(".snakemake/log").glob("*.log")
        yield from Path(".snakemake").glob("twf-*.log")  # of `twf.cli.warm`


def _wandb(scope: Scope) -> Iterator[Path]:
    """Offline runs that `wandb sync` has sent, as its mark beside them says; of all studies."""
    if scope.study is None:
        for mark in Path("wandb").glob("offline-run-*/*.wandb.synced"):
            yield mark.parent


def _archives(scope: Scope) -> Iterator[Path]:
    """Official archives from which all has been made that `params.yaml` makes from them."""
    made: defaultdict[str, list[Path]] = defaultdict(list)
    for name, dataset in scope.params.datasets.items():
        if dataset.reader == "official":
            made[dataset.archive].append(files.data_file(name))
    for name, source in scope.params.sources.items():
        if source.weights and (archive := registry.of_file(Path(source.weights))):
            made[archive].append(files.checkpoint_file(name))
    wanted = set(made)
    if scope.study is not None:
        plan = scope.plans.get(scope.study)
        wanted &= set(registry.needed(scope.params, plan) if plan else ())
    for archive in wanted:
        if files.archive_folder(archive).is_dir() and all(path.exists() for path in made[archive]):
            yield files.archive_folder(archive)


FINDERS: dict[str, Callable[[Scope], Iterator[Path]]] = {
    "records": _records,
    "states": _finished_states,
    "partials": _partials,
    "logs": _logs,
    "wandb": _wandb,
    "archives": _archives,
}


def _is_ours(path: Path) -> bool:
    """Whether it lies in this folder, is a file or folder itself, and no link led to it."""
    root = Path.cwd().resolve()
    mode = path.lstat().st_mode
    return path.resolve() == root / path and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; what a link leads to is not counted."""
    inside = chain.from_iterable(
        [Path(folder, name) for name in names] for folder, _, names in os.walk(path)
    )
    return sum(each.lstat().st_size for each in ([path] if path.is_file() else inside))


@contextlib.contextmanager
def _unless_held(path: Path) -> Iterator[bool]:
    """Hold what locks a file or folder, while it is looked at; False where another has it."""
    try:
        file = path.with_name(f"{path.name.removesuffix('.partial')}.lock").open("r+")
    except FileNotFoundError:
        yield True
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _remove(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path)  # links in it go, not what they lead to
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot remove {error.filename or path} ({error.strerror}): make that possible, then "
            "call again"
        ) from None
