"""The figures of a study: which there are, the frame that each draws, and the drawing.

A figure's CSV is its frame, and nothing is drawn that is not in it. Means are over finished runs;
a cell without any is absent. `n` is the number of finished runs, `mean` their mean, `low` and
`high` the ends of Student's 95 % interval: empty with one run. Tasks count from 1, per cent is of
images, `buffer` is 0 without rehearsal.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from twf.files import atomic, figure_file, figures_folder
from twf.results import estimates, show, statistics, tables
from twf.results.figures import style
from twf.results.frame import Results, column
from twf.results.record import PROBED
from twf.study import Plan, Table
from twf.study.methods import METHODS

PLACE = ["method", "variant", "label", "buffer", "protocol"]
SPREAD = ["n", "mean", "low", "high"]
QUANTITIES = {"cka": "CKA", "nearest_neighbours": "k-NN, %", "gates_open": "open gates, %"}


class Kind(NamedTuple):
    """A kind of figure: what it shows, which tables have it, how its data are made and drawn."""

    title: str
    suits: Callable[[Plan, Table], bool]
    frame: Callable[[Any, Table], pd.DataFrame]  # of results; of differences, of estimates
    draw: Callable[[pd.DataFrame], Drawing]


class Drawn(NamedTuple):
    """A figure that was written."""

    name: str
    table: str
    caption: str
    svg: str


def planned(plan: Plan) -> Iterator[tuple[str, Kind, Table]]:
    """The figures that a study has once its runs have finished: name, kind, table."""
    for table in plan.tables.values():
        for name, kind in KINDS.items():
            if kind.suits(plan, table):
                yield f"{name}.{table.name}", kind, table


def write(results: Results, of_study: pd.DataFrame) -> list[Drawn]:
    """Write a study's figures, each with its data, and return them; `of_study` has its estimates.

    A figure without any data is not written, and what other figures left in the folder is removed.
    """
    study = results.plan.study
    drawn, made = [], set()
    for name, kind, table in planned(results.plan):
        data = kind.frame(of_study if kind.frame is differences else results, table)
        if data["n"].sum() == 0:
            continue
        svg = style.svg(partial(kind.draw, data))
        for ending, content in (("svg", svg), ("csv", data.to_csv(index=False))):
            path = figure_file(study, name, ending)
            with atomic(path) as temporary:
                temporary.write_text(content, encoding="utf-8", newline="\n")
            made.add(path)
        drawn.append(Drawn(name, table.name, _caption(kind, table, data), svg))
    folder = figures_folder(study)
    for path in folder.iterdir() if folder.exists() else ():
        if path not in made:
            path.unlink()
    return drawn


def _caption(kind: Kind, table: Table, frame: pd.DataFrame) -> str:
    """A figure's title, its table's, and what its means, bands and whiskers are."""
    counts = frame["n"][frame["n"] > 0]
    low, high = counts.min(), counts.max()
    mean = "One seed"
    if high > 1:
        of_differences = kind.frame is differences
        rule = tables.rule(table) if of_differences else "Student's 95 % interval"
        mean = f"Mean over {high} seeds" if low == high else f"Mean over {low} to {high} seeds"
        mean += f"; {'whiskers' if of_differences else 'bands'}: {rule}"
        mean += ", none for one seed" if low == 1 else ""
    return f"{kind.title}. {table.title}. {mean}."


def spread(rows: pd.DataFrame, by: list[str], value: str = "value") -> pd.DataFrame:
    """Number, mean and interval of some rows' values: a row for each group by some columns."""
    groups = rows.groupby(by, sort=False, dropna=False)[value]
    return statistics.summary(groups).reset_index()[[*by, *SPREAD]]


def _finished(results: Results, table: Table) -> pd.DataFrame:
    """The finished runs of a table's cells, as `Results.members`, with the `label` of their row."""
    rows = results.members[results.members["table"] == table.name]
    rows = rows[rows["status"] == "finished"]
    titles = {(method, variant or ""): title for (method, variant), title in table.rows.items()}
    return rows.assign(label=[titles[row["method"], row["variant"]] for row in show.rows(rows)])


# Accuracy over the tasks


def accuracy(results: Results, table: Table) -> pd.DataFrame:
    """The average accuracy over the tasks seen so far, per cent, after `tasks` of them.

    Joint, which learns them at once, has one row, after the last.
    """
    rows = []
    for row in show.rows(_finished(results, table)):
        matrix = results.runs.loc[row["run"], column("accuracy", row["protocol"])]
        before = len(matrix[0]) - len(matrix)  # tasks of the first row, but for one
        rows += [
            {**{name: row[name] for name in PLACE}, "tasks": tasks, "value": np.mean(after[:tasks])}
            for tasks, after in enumerate(matrix, start=before + 1)
        ]
    return spread(pd.DataFrame(rows, columns=[*PLACE, "tasks", "value"]), [*PLACE, "tasks"])


def _draw_accuracy(frame: pd.DataFrame) -> Drawing:
    """Lines over the tasks; a panel per protocol and buffer, with all methods without rehearsal."""
    names = "tasks trained", f"average {style.ACCURACY}"
    figure, panels = style.panels_by_place(frame, 2.0, *names, sharex=True, sharey="row")
    for panel, rows in panels:
        for method, group in rows.groupby("method", sort=False):
            style.line(panel, "tasks", group, **style.LOOKS[str(method)])
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        of_row = frame.loc[frame["protocol"].isin(rows["protocol"]), "mean"]
        low, high = _limits(of_row.to_numpy(float))
        panel.set_ylim(max(low, 0), min(high, 101.5))
    style.legend(figure, 3)
    return figure


def _limits(values: np.ndarray) -> tuple[float, float]:
    """What a panel shows: some values, and to each side as much again as these span.

    So one wide interval does not flatten the others.
    """
    low, high = np.nanmin(values), np.nanmax(values)
    room = max(high - low, 1.0)
    return low - room, high + room


# Differences


def differences(of_study: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Differences of final average accuracy between cells, in percentage points.

    The estimates of kind `gain` of a table whose two cells have a finished run; of methods, those
    with a buffer. `title` is the method's or the variant's, and `over` says what is subtracted. A
    variant whose runs all diverged has n = 0, and says in `diverged` how many.
    """
    rows = of_study[(of_study["kind"] == "gain") & (of_study["table"] == table.name)]
    titles = {name: info.title for name, info in METHODS.items()}
    if table.variants:
        rows = rows[(rows["n"] > 0) | (rows["diverged"] > 0)]
        title = rows["variant"].map(table.variants)
        over = rows["method"].map(titles) + " with"
    else:
        rehearses = rows["over_method"].map(lambda name: METHODS[name].rehearsal).astype(bool)
        rows = rows[rehearses & (rows["n"] > 0)]
        title = rows["over_method"].map(titles)
        over = title.map(lambda _: tables.over(table))
    rows = rows.assign(label=rows["title"], title=title, over=over)
    return rows[[*PLACE, "title", "over", *SPREAD, "diverged", "paper"]]


def _draw_differences(frame: pd.DataFrame) -> Drawing:
    """Dots with whiskers beside a line at 0, and the paper's; a panel per protocol and buffer."""
    over, label = frame["over"].unique(), frame["title"]
    if len(over) > 1:
        label = frame["over"] + " " + label
    frame, lines = frame.assign(line=label), list(label.unique())
    names = ("" if len(over) > 1 else f"{over[0]} …, ") + "percentage points", ""
    height = 0.6 + 0.16 * len(lines)
    figure, panels = style.panels_by_place(frame, height, *names, sharey=True, sharex="row")
    for panel, rows in panels:
        panel.axvline(0, color=style.BLACK, linewidth=0.8)
        limits = _limits(np.append(rows[["mean", "paper"]].to_numpy(float).ravel(), 0.0))
        for row in show.rows(rows):
            _dot(panel, row, lines.index(row["line"]), *limits)
        panel.set(yticks=range(len(lines)), yticklabels=lines, ylim=(len(lines) - 0.5, -0.6))
        panel.tick_params(axis="y", length=0)
        panel.tick_params(axis="x", labelbottom=True)
        panel.margins(x=0.12)
        panel.grid(axis="x")
        panel.grid(visible=False, axis="y")
    if frame["paper"].notna().any():
        style.legend(figure, 2)
    return figure


def _dot(panel: Axes, row: dict[str, Any], y: float, least: float, most: float) -> None:
    """A difference with its whisker, and the paper's; a word where all runs diverged.

    An interval that goes beyond what is shown ends in an arrow.
    """
    if not row["n"]:
        panel.annotate("diverged", (0, y), (3, 0), textcoords="offset points", va="center")
        return
    if not pd.isna(row["low"]):
        low, high = max(row["low"], least), min(row["high"], most)
        panel.plot([low, high], [y, y], color=style.BLUE, linewidth=1)
        for end, shown, marker in ((row["low"], low, "<"), (row["high"], high, ">")):
            if end != shown:
                panel.plot(shown, y, marker, color=style.BLUE)
    panel.plot(row["mean"], y, "o", color=style.BLUE, label="ours, with its 95 % interval")
    if not pd.isna(row["paper"]):
        panel.plot(row["paper"], y, label="the paper", **style.PAPER)


# What is left of the initialization


def initialization(results: Results, table: Table) -> pd.DataFrame:
    """What is left of the initialization after `tasks` tasks, 0 before training, by `layer`.

    `quantity` is `cka`, from 0 to 1, with the network before training, `nearest_neighbours`, the
    accuracy on the source's images in per cent, or `gates_open`, in per cent. Of the cells whose
    runs were probed.
    """
    rows = _finished(results, table).drop_duplicates("run")  # one run serves both protocols
    probed = results.runs[list(PROBED)]
    values = [
        (*(row[name] for name in PLACE), quantity, layer, tasks, value)
        for row in show.rows(rows)
        for quantity, layers in PROBED.items()
        for tasks, after in enumerate(probed.loc[row["run"], quantity])
        for layer, value in zip(layers, after, strict=True)
    ]
    by = [*PLACE, "quantity", "layer", "tasks"]
    return spread(pd.DataFrame(values, columns=[*by, "value"]), by)


def _draw_initialization(frame: pd.DataFrame) -> Drawing:
    """What was probed, over the tasks, a line per layer; a row per row of the table."""
    cells = dict(list(frame.groupby(["label", "buffer"], sort=False)))
    there = [name for name in QUANTITIES if name in set(frame["quantity"])]
    figure, panels = style.panels(list(cells), there, 1.35, sharex=True, sharey="col")
    looks = {
        layer: {"color": colour, "marker": marker, "linestyle": line}
        for layer, colour, marker, line in zip(
            frame["layer"].unique(), style.COLOURS[1:], style.MARKERS, style.LINES, strict=False
        )
    }
    for (cell, quantity), panel in panels.items():
        rows = cells[cell]
        for layer, group in rows[rows["quantity"] == quantity].groupby("layer", sort=False):
            style.line(panel, "tasks", group, label=layer, **looks[layer])
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set(ylim=(0, 1.03 if quantity == "cka" else 104), ylabel=QUANTITIES[quantity])
        if quantity == "cka":
            buffer = f", buffer {cell[1]}" if cell[1] else ""
            panel.set_title(f"{cell[0]}{buffer}", loc="left")
        if cell == list(cells)[-1]:
            panel.set_xlabel("tasks trained")
    style.legend(figure, 3)
    return figure


# Which tables have which


def _of_pairs(plan: Plan, table: Table) -> bool:
    """Whether cells are subtracted from each other, of methods with a buffer."""
    pairs = estimates.pairs(table)
    if table.variants:
        return bool(pairs) and not _of_probes(plan, table)
    return any(METHODS[other.method].rehearsal for _, other in pairs)


def _of_probes(plan: Plan, table: Table) -> bool:
    """Whether the experiment is about the initialization: all its runs are probed."""
    return all(plan.runs[run].probes for cell in table.cells for run in cell.runs.values())


KINDS = {
    "accuracy": Kind(
        "Average accuracy over the tasks seen, after each task",
        lambda plan, table: not table.variants,
        accuracy,
        _draw_accuracy,
    ),
    "differences": Kind(
        "Differences of final average accuracy", _of_pairs, differences, _draw_differences
    ),
    "initialization": Kind(
        "CKA with the network before training, k-NN accuracy on the source, and open gates",
        _of_probes,
        initialization,
        _draw_initialization,
    ),
}
