"""The figures of a study: which there are, and their files.

`planned` says which figures a plan's tables have, from what each table is about; `write` makes
their `frames`, draws them and writes both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure as Drawing

from twf.files import FIGURE_FORMATS, atomic, figure_file, figures_folder
from twf.progress import progress
from twf.results import estimates, tables
from twf.results.figures import charts, frames, style
from twf.results.frame import Results
from twf.study import Plan, Table
from twf.study.methods import METHODS


@dataclass(frozen=True)
class Kind:
    """A kind of figure: what it shows, which tables have it, how its data are made and drawn."""

    title: str
    suits: Callable[[Plan, Table], bool]
    frame: Callable[[Any, Table], pd.DataFrame]  # of results, or of estimates
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


class Drawn(NamedTuple):
    """A figure that was written."""

    name: str
    table: str
    caption: str
    svg: str


def _of_methods(plan: Plan, table: Table) -> bool:
    return not table.variants


def _of_pairs(plan: Plan, table: Table) -> bool:
    """Whether cells are subtracted from each other, and that is not drawn as something else."""
    elsewhere = _of_shares(plan, table) or _of_probes(plan, table)
    with_buffer = [
        METHODS[(cell if table.baseline else other).method].rehearsal
        for cell, other in estimates.pairs(table)
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
        interval=tables.rule,
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


def write(results: Results, frame: pd.DataFrame) -> list[Drawn]:
    """Write a study's figures, each with its data, and return them; `frame` has its estimates.

    A figure without any data is not written, and what other figures left in the folder is removed.
    """
    study, wanted = results.plan.study, list(planned(results.plan))
    drawn, made = [], set()
    with progress(f"figures of {study}", len(wanted)) as advance:
        for figure in wanted:
            of_estimates = figure.kind.frame is frames.differences
            data = figure.kind.frame(frame if of_estimates else results, figure.table)
            advance(1, figure.name)
            if data["n"].sum() == 0:
                continue
            svg = style.svg(partial(figure.kind.draw, data))
            paths = [figure_file(study, figure.name, ending) for ending in FIGURE_FORMATS]
            for path, content in zip(paths, (svg, data.to_csv(index=False)), strict=True):
                with atomic(path) as temporary:
                    temporary.write_text(content, encoding="utf-8", newline="\n")
            made |= set(paths)
            caption = " ".join(_words(figure, data))
            drawn.append(Drawn(figure.name, figure.table.name, caption, svg))
    folder = figures_folder(study)
    for path in folder.iterdir() if folder.exists() else ():
        if path not in made:
            path.unlink()
    return drawn


def _words(figure: Figure, frame: pd.DataFrame) -> list[str]:
    """A figure's caption: its title, its table's, and what means, bands and the like are."""
    counts = frame["n"][frame["n"] > 0]
    low, high = counts.min(), counts.max()
    mean = "One seed"
    if high > 1:
        mean = f"Mean over {high} seeds" if low == high else f"Mean over {low} to {high} seeds"
        if figure.kind.spread:
            mean += f"; {figure.kind.spread}: {figure.kind.interval(figure.table)}"
            mean += ", none for one seed" if low == 1 else ""
    return [f"{figure.kind.title}. {figure.table.title}.", f"{mean}. {figure.kind.note}".rstrip()]
