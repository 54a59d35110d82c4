"""The figures of a study, each with a CSV of the frame that it draws.

Means are over finished runs; a cell without any is absent. `n` is the number of seeds, `mean` their
mean, `low` and `high` the ends of its 95 % interval: empty with one seed. Tasks count from 1, per
cent is of images, `buffer` is 0 without rehearsal.
"""

import io
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from twf.files import figure_file, figures_folder, write_text
from twf.results import show, statistics, tables
from twf.results.frame import Results, column
from twf.results.record import PROBED
from twf.study import Table
from twf.study.methods import METHODS

PLACE = ["method", "variant", "label", "buffer", "protocol"]
SPREAD = ["n", "mean", "low", "high"]
CKA = "CKA"
QUANTITIES = {"cka": CKA, "nearest_neighbours": "k-NN, %", "gates_open": "open gates, %"}

# Okabe and Ito's palette, which the colour-blind can tell apart, without its yellow, which is too
# pale for lines on white, and four of Paul Tol's, so that no two methods share a colour. In grey
# print, markers and line styles do it.
BLACK, GREY, VERMILION, BLUE = "#000000", "#7F7F7F", "#D55E00", "#0072B2"
COLOURS = [BLACK, GREY, "#CC79A7", VERMILION, "#E69F00", "#56B4E9", "#009E73", "#332288"]
COLOURS += ["#882255", "#999933", "#44AA99", BLUE]
MARKERS = ("o", "X", "s", "d", ">", "P", "p", "^", "v", "<", "D", "h", "*", "8", "H")

# What `Axes.plot` draws a method with: dotted without rehearsal
LOOKS: dict[str, dict[str, Any]] = {
    method: {"color": colour, "marker": marker, "linestyle": "-" if info.rehearsal else ":"}
    for (method, info), colour, marker in zip(METHODS.items(), cycle(COLOURS), cycle(MARKERS))
}

SIZE = 9  # points
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same bytes on each machine
    "font.size": SIZE,
    "figure.labelsize": SIZE,
    "axes.titlesize": SIZE,
    "axes.titlelocation": "left",
    "xtick.labelsize": SIZE - 1,
    "ytick.labelsize": SIZE - 1,
    "legend.fontsize": SIZE - 0.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "text.parse_math": False,  # a title's $ is a dollar
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "twf",  # not random
}


class Drawn(NamedTuple):
    """A figure that was written."""

    table: str
    caption: str
    svg: Markup


def write(results: Results, of_study: pd.DataFrame) -> list[Drawn]:
    """Write a study's figures in place of those that are there; `of_study` has its estimates.

    Of a table, those of its differences, of accuracy over the tasks where its rows are methods, and
    of what is left of the initialization where all its runs are probed; none without data.
    """
    study, drawn, made = results.plan.study, [], set()
    figures_folder(study).mkdir(parents=True, exist_ok=True)  # also where there is none to draw
    for table in results.plan.tables.values():
        for name, title, data, draw in _of_table(results, of_study, table):
            if data.empty:
                continue
            drawing = svg(partial(draw, data))
            for ending, content in (("svg", drawing), ("csv", data.to_csv(index=False))):
                path = figure_file(study, f"{name}.{table.name}", ending)
                write_text(path, content)
                made.add(path)
            seeds = " to ".join(map(str, sorted({data["n"].min(), data["n"].max()})))
            caption = f"{title}, none for one seed. {table.title}. Seeds: {seeds}."
            # text from data is escaped in a drawing, and a page runs no script of it
            inside = Markup(drawing[drawing.index("<svg") :])  # noqa: S704
            drawn.append(Drawn(table.name, caption, inside))
    for path in set(figures_folder(study).glob("[!.]*")) - made:  # last: a kill leaves what was
        path.unlink()
    return drawn


def _of_table(
    results: Results, of_study: pd.DataFrame, table: Table
) -> Iterator[tuple[str, str, pd.DataFrame, Callable[[pd.DataFrame], Figure]]]:
    """A table's figures: name, title, data, how these are drawn."""
    bands = "with bands of Student's 95 % intervals"
    probed = all(results.plan.runs[run].probes for run in results.plan.runs_of(table))
    if not (table.variants and probed):
        rule = "Student's 95 % intervals, by seed" if table.variants else "Welch's 95 % intervals"
        title = f"Differences of final average accuracy, with {rule}"
        draw = partial(_draw_differences, over=tables.over(table))
        yield "differences", title, differences(of_study, table), draw
    if not table.variants:
        title = f"Average accuracy over the tasks seen, after each task, {bands}"
        yield "accuracy", title, accuracy(results, table), _draw_accuracy
    if probed:
        title = "CKA with the network before training, k-NN accuracy on the source, and open gates"
        data = initialization(results, table)
        yield "initialization", f"{title}, {bands}", data, _draw_initialization


def _finished(results: Results, table: Table) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each finished run of a table's cells: its `PLACE`, and its row of `Results.runs`."""
    members = results.members[results.members["table"] == table.name]
    for row in show.rows(members[members["status"] == "finished"]):
        row["label"] = table.rows[row["method"], row["variant"] or None]
        yield {name: row[name] for name in PLACE}, results.runs.loc[row["run"]]


def _spread(rows: list[dict[str, Any]], *columns: str) -> pd.DataFrame:
    """Number, mean and interval of the values in each place, by some columns."""
    by = [*PLACE, *columns]
    values = pd.DataFrame(rows, columns=[*by, "value"])
    return statistics.summary(values.groupby(by, sort=False)["value"]).reset_index()[[*by, *SPREAD]]


# Over the tasks


def accuracy(results: Results, table: Table) -> pd.DataFrame:
    """The average accuracy over the tasks seen so far, per cent, after `tasks` of them.

    Joint, which learns them at once, has one row, after the last.
    """
    rows = []
    for place, run in _finished(results, table):
        matrix = run[column("accuracy", place["protocol"])]
        for tasks, after in enumerate(matrix, start=len(matrix[0]) - len(matrix) + 1):
            rows.append(place | {"tasks": tasks, "value": np.mean(after[:tasks])})
    return _spread(rows, "tasks")


def initialization(results: Results, table: Table) -> pd.DataFrame:
    """What is left of the initialization after `tasks` tasks, 0 before training, by `layer`.

    `quantity` is `cka`, from 0 to 1, with the network before training, `nearest_neighbours`, the
    accuracy on the source's images in per cent, or `gates_open`, in per cent.
    """
    rows = [
        place | {"quantity": quantity, "layer": layer, "tasks": tasks, "value": value}
        for place, run in _finished(results, table)
        if place["protocol"] == table.protocols[0]  # a run is probed once
        for quantity, layers in PROBED.items()
        for phase, after in enumerate(run[quantity])
        for tasks in [phase * len(run["initial_class_il"]) // (len(run[quantity]) - 1)]
        for layer, value in zip(layers, after, strict=True)
    ]
    return _spread(rows, "quantity", "layer", "tasks")


def _draw_accuracy(frame: pd.DataFrame) -> Figure:
    """A line per method; a panel per protocol and buffer."""
    looks = {row["label"]: LOOKS[row["method"]] for row in show.rows(frame)}
    places = _by_buffer(frame.assign(line=frame["label"], y="average accuracy, %"))
    return _draw_lines(places, looks, 2.0)


def _draw_initialization(frame: pd.DataFrame) -> Figure:
    """A line per layer; a panel per row of the table and quantity."""
    looks = dict(zip(frame["layer"].unique(), [*LOOKS.values()][1:], strict=False))
    sizes = frame["buffer"].map(lambda size: f", buffer {size}" if size else "")
    places = frame.rename(columns={"layer": "line", "quantity": "across"})
    places = places.assign(down=frame["label"] + sizes, y=frame["quantity"].map(QUANTITIES))
    places["title"] = places["down"].where(places["y"] == CKA, "")
    return _draw_lines(places, looks, 1.35)


def _draw_lines(frame: pd.DataFrame, looks: dict[str, dict[str, Any]], height: float) -> Figure:
    """A `line` through means over the tasks, with a band over its intervals; `y` names the axis."""
    figure, panels = _panels(frame, "tasks trained", height, sharex=True)
    for panel, rows in panels:
        for line, group in rows.groupby("line", sort=False):
            tasks, mean, low, high = group[["tasks", *SPREAD[1:]]].to_numpy(float).T
            panel.plot(tasks, mean, label=line, **looks[str(line)])
            panel.fill_between(tasks, low, high, color=looks[str(line)]["color"], alpha=0.15, lw=0)
        name = rows["y"].iloc[0]
        least, most = _limits(frame.loc[frame["y"] == name, "mean"])
        panel.set(ylim=(max(least, 0), min(most, 1.03 if name == CKA else 101.5)), ylabel=name)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _with_legend(figure, 3)


def _limits(values: Any) -> tuple[float, float]:
    """What a panel shows, so that no wide interval flattens the rest: thrice what values span."""
    low, high = np.nanmin(values), np.nanmax(values)
    room = max(high - low, 1.0)
    return low - room, high + room


# Differences


def differences(of_study: pd.DataFrame, table: Table) -> pd.DataFrame:
    """A table's estimates of kind `gain`, in percentage points; of methods, those with a buffer."""
    rehearse = [name for name, info in METHODS.items() if info.rehearsal or table.variants]
    rows = of_study[(of_study["kind"] == "gain") & (of_study["table"] == table.name)]
    rows = rows[rows["over_method"].isin(rehearse) & (rows["n"] > 0)]
    return rows.rename(columns={"title": "label"})[[*PLACE, *SPREAD, "paper"]]


def _draw_differences(frame: pd.DataFrame, over: str) -> Figure:
    """Dots with whiskers beside a line at 0, and the paper's; a panel per protocol and buffer.

    An interval that goes beyond what is shown ends in an arrow.
    """
    frame = frame.assign(label=frame["label"].map(partial(textwrap.fill, width=30)))
    lines = list(frame["label"].unique())
    height = 0.6 + 0.16 * len(lines) * max(label.count("\n") + 1 for label in lines)
    places, x = _by_buffer(frame), f"{over} …, percentage points"
    figure, panels = _panels(places, x, height, sharey=True, sharex="row")
    for panel, rows in panels:
        panel.axvline(0, color=BLACK, linewidth=0.8)
        least, most = _limits([0.0, *rows["mean"], *rows["paper"]])
        y = rows["label"].map(lines.index)
        panel.hlines(y, rows["low"].clip(least), rows["high"].clip(upper=most), BLUE, linewidth=1)
        panel.plot(np.where(rows["low"] < least, least, np.nan), y, "<", color=BLUE)
        panel.plot(np.where(rows["high"] > most, most, np.nan), y, ">", color=BLUE)
        panel.plot(rows["mean"], y, "o", color=BLUE, label="ours, with its 95 % interval")
        if rows["paper"].notna().any():
            look: Any = {"color": VERMILION, "fillstyle": "none", "markersize": 3}
            panel.plot(rows["paper"], y, "D", label="the paper", **look)
        panel.set(yticks=range(len(lines)), yticklabels=lines, ylim=(len(lines) - 0.5, -0.6))
        panel.tick_params(axis="y", length=0, grid_alpha=0)
        panel.margins(x=0.12)
        panel.grid(axis="x")
    return _with_legend(figure, 2)


# How they look


def svg(draw: Callable[[], Figure]) -> str:
    """A drawing as SVG, the same bytes each time."""
    with style.context(["default", _SETTINGS]):
        file = io.StringIO()
        # Without these entries there is no metadata element, which would name the day.
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        draw().savefig(file, format="svg", metadata=metadata)
    # The numbered identifiers are referred to by nothing, and alike in each figure of a page.
    return re.sub(r' id="[a-zA-Z0-9.]*_\d+"', "", file.getvalue())


def _by_buffer(frame: pd.DataFrame) -> pd.DataFrame:
    """Places by protocol and buffer for `_panels`; rows without a buffer are beside each."""
    buffers = sorted(set(frame["buffer"]) - {0}) or [0]
    beside = frame.assign(across=frame["buffer"].map(lambda size: [size] if size else buffers))
    beside = beside.explode("across").sort_values("across", kind="stable")
    titles = list(map(show.place, beside["protocol"], beside["across"]))
    return beside.assign(down=beside["protocol"], title=titles)


def _panels(
    frame: pd.DataFrame, x: str, height: float, **sharing: Any
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure of panels by `down` and `across`, of `height` inches, and the rows of each."""
    down, across = frame["down"].unique(), frame["across"].unique()
    # of this width, the smallest type has 9 pixels on a phone with 390
    figure = Figure(figsize=(4.4, height * len(down)), layout="constrained")
    figure.supxlabel(x)
    grid = figure.subplots(len(down), len(across), squeeze=False, **sharing)
    panels = []
    for panel, (one, other) in zip(grid.flat, product(down, across), strict=True):
        rows = frame[(frame["down"] == one) & (frame["across"] == other)]
        panel.set(title=rows["title"].iloc[0] if len(rows) else "", visible=not rows.empty)
        panels += [] if rows.empty else [(panel, rows)]
    return figure, panels


def _with_legend(figure: Figure, columns: int) -> Figure:
    """With one legend of all panels, above them: each label once. The figure grows by it."""
    each = [panel.get_legend_handles_labels() for panel in figure.axes]
    handles = {label: handle for both in each for handle, label in zip(*both, strict=True)}
    look: Any = {"ncols": min(columns, len(handles)), "handlelength": 2.0, "columnspacing": 1.0}
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", **look)
    lines = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.1 + lines * 1.4 * SIZE / 72)
    return figure
