"""The figures of a study: which there are, and their files.

`planned` says which figures a plan's tables have, from what each table is about; `write` makes
their `frames`, draws them and writes both.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure as Drawing

from twf.files import FIGURE_FORMATS, atomic, figure_file, figure_index
from twf.progress import progress
from twf.results import show
from twf.results.figures import charts, frames, style
from twf.results.frame import Results
from twf.results.paper import gains
from twf.study import Plan, Table
from twf.study.methods import METHODS

# The columns of the list of figures; the last is a hash of a figure's files and of what drew them.
INDEX = ["figure", "table", "drawn"]


@dataclass(frozen=True)
class Kind:
    """A kind of figure: what it shows, which tables have it, how its data are made and drawn."""

    title: str
    suits: Callable[[Plan, Table], bool]
    frame: Callable[[Results, Table], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Drawing]
    spread: str = ""  # what shows it: bands, or whiskers; nothing where it is not drawn
    interval: Callable[[Table], str] = lambda table: "Student's 95 % interval"
    note: str = ""  # what else has to be said


@dataclass(frozen=True)
class Figure:
    """A figure of a plan: a kind, of a table."""

    name: str
    kind: Kind
    table: Table


def _of_methods(plan: Plan, table: Table) -> bool:
    return not table.variants


def _of_fidelity(plan: Plan, table: Table) -> bool:
    """Whether variants differ in a switch between paper and published code."""
    runs = [plan.runs[run] for cell in table.cells for run in cell.runs.values()]
    switched = {(run.method, str(run.fidelity)) for run in runs}
    return len(switched) > len({run.method for run in runs})


def _of_pairs(plan: Plan, table: Table) -> bool:
    """Whether cells are subtracted from each other, and that is not drawn as something else."""
    elsewhere = _of_shares(plan, table) or _of_probes(plan, table)
    with_buffer = [
        METHODS[(cell if table.baseline else other).method].rehearsal
        for cell, other in gains.pairs(table)
    ]
    return any(with_buffer if not table.variants else [bool(with_buffer)]) and not elsewhere


def _of_shares(plan: Plan, table: Table) -> bool:
    return any(cell.method == "derpp-pretraining" for cell in table.cells)


def _of_probes(plan: Plan, table: Table) -> bool:
    """Whether the experiment is about the initialization: all its runs are probed."""
    return all(plan.runs[run].probes for cell in table.cells for run in cell.runs.values())


KINDS = {
    "accuracy": Kind(
        "Average accuracy over the tasks seen, after each task",
        _of_methods,
        frames.accuracy,
        charts.accuracy,
        spread="bands",
    ),
    "differences": Kind(
        "Differences of final average accuracy",
        _of_pairs,
        frames.differences,
        charts.differences,
        spread="whiskers",
        interval=gains.model,
    ),
    "matrix": Kind(
        "Accuracy on each task after training each, per cent, first protocol and smallest buffer",
        _of_methods,
        frames.matrix,
        charts.matrix,
        note="Right of the white line are tasks still to come.",
    ),
    "initialization": Kind(
        "CKA with the network before training, and k-NN accuracy on the source",
        _of_probes,
        frames.initialization,
        charts.initialization,
        spread="bands",
    ),
    "shares": Kind(
        "Final average accuracy by the buffer's share of pretraining images",
        _of_shares,
        frames.shares,
        charts.shares,
        spread="bands",
    ),
}


def planned(plan: Plan) -> Iterator[Figure]:
    """The figures that a study has once its runs have finished."""
    for table in plan.tables.values():
        for name, kind in KINDS.items():
            if kind.suits(plan, table):
                yield Figure(f"{name}.{table.name}", kind, table)


def write(results: Results, some: Iterable[Figure] | None = None) -> list[str]:
    """Write a study's figures, all or some, each with its data, and the list of them.

    One that is there is drawn again only where its data, its words or what draws have changed.
    Returns the names of those without any data, which are not written. What other figures left in
    the folder is removed.
    """
    study, index, without = results.plan.study, [], []
    wanted = list(planned(results.plan) if some is None else some)
    file = figure_index(study)
    before = dict(pd.read_csv(file)[["figure", "drawn"]].to_numpy()) if file.exists() else {}
    with progress(f"figures of {study}", len(wanted)) as advance:
        for figure in wanted:
            frame = figure.kind.frame(results, figure.table)
            if frame["n"].sum() == 0:
                without.append(figure.name)
                advance(1, f"{figure.name}: no data yet")
                continue
            words, data = _words(figure, frame), frame.to_csv(index=False).encode()
            drawing = figure_file(study, figure.name, "svg")
            drawn = before.get(figure.name)
            kept = drawing.exists() and drawn == _hash(words, data, drawing.read_bytes())
            if not kept:
                svg = as_svg(figure.kind.draw, frame, words)
                drawn = _hash(words, data, svg)
                _write(drawing, svg)
            _write(figure_file(study, figure.name, "csv"), data)
            index.append((figure.name, figure.table.name, drawn))
            advance(1, f"{figure.name}{': as before' * kept}")
    _write(file, pd.DataFrame(index, columns=INDEX).to_csv(index=False).encode())
    made = {figure_file(study, name, e) for name, *_ in index for e in FIGURE_FORMATS}
    for path in file.parent.iterdir():
        if path.suffix.removeprefix(".") in FIGURE_FORMATS and path not in made | {file}:
            path.unlink()
    return without


def _words(figure: Figure, frame: pd.DataFrame) -> list[str]:
    """What stands over a figure: its title, its table's, and what means, bands and the like are."""
    counts = frame["n"][frame["n"] > 0]
    low, high = counts.min(), counts.max()
    mean = "One seed"
    if high > 1:
        mean = f"Mean over {high} seeds" if low == high else f"Mean over {low} to {high} seeds"
        if figure.kind.spread:
            mean += f"; {figure.kind.spread}: {figure.kind.interval(figure.table)}"
            mean += ", none for one seed" if low == 1 else ""
    return [figure.kind.title, figure.table.title, f"{mean}. {figure.kind.note}".rstrip()]


@cache
def _code() -> bytes:
    """What draws: the modules of this package, whence they have words, and matplotlib's version."""
    modules = [*sorted(Path(__file__).parent.glob("*.py")), Path(show.__file__)]
    return b"".join([version("matplotlib").encode(), *(path.read_bytes() for path in modules)])


def _hash(words: list[str], data: bytes, svg: bytes) -> str:
    """A hash of a figure's data, its drawing, and what made this of that."""
    parts = (json.dumps(words).encode(), data, svg, _code())
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _write(path: Path, content: bytes) -> None:
    with atomic(path) as partial:
        partial.write_bytes(content)


def as_svg(draw: Callable[[pd.DataFrame], Drawing], frame: pd.DataFrame, words: list[str]) -> bytes:
    """A frame as SVG, below some lines of text."""
    with style.settings():
        drawing = draw(frame)
        style.title(drawing, words)
        file = io.BytesIO()
        # Without these entries there is no metadata element, which would name the day.
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawing.savefig(file, format="svg", metadata=metadata)
    # The numbered identifiers are referred to by nothing, and alike in each figure of a page.
    return re.sub(rb' id="[a-zA-Z0-9.]*_\d+"', b"", file.getvalue())
