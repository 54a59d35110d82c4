"""How figures look: one place for what each method is drawn with, for sizes and for panels."""

import io
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from twf.results import show
from twf.study.methods import METHODS

# Okabe and Ito's palette, which the colour-blind can tell apart, without its yellow, which is too
# pale for lines on white. In grey print, markers and line styles do it.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
VERMILION, BLUE, PURPLE, GREY = "#D55E00", "#0072B2", "#CC79A7", "#7F7F7F"
# and four of Paul Tol's, so that no two methods share a colour
INDIGO, WINE, OLIVE, TEAL = "#332288", "#882255", "#999933", "#44AA99"
COLOURS = (BLACK, GREY, PURPLE, VERMILION, ORANGE, SKY, GREEN, INDIGO, WINE, OLIVE, TEAL, BLUE)
MARKERS = ("h", "X", "p", "d", ">", "P", "s", "^", "v", "<", "D", "o", "*", "8", "H")
LINES = ("-", "--", "-.", ":", (0, (5, 1)))  # as many as layers


# What `Axes.plot` draws a method with, by its place in the order of METHODS: dotted without
# rehearsal, and TwF above the others.
LOOKS: dict[str, dict[str, Any]] = {
    method: {
        "color": colour,
        "marker": marker,
        "linestyle": "-" if METHODS[method].rehearsal else ":",
        "zorder": 4 if method == "twf" else 3,
    }
    for method, colour, marker in zip(METHODS, cycle(COLOURS), cycle(MARKERS), strict=False)
}

# What a number of the paper is drawn with
PAPER: dict[str, Any] = {"color": VERMILION, "linestyle": "none", "fillstyle": "none"}
PAPER |= {"marker": "D", "markersize": 3}

# On a phone's 390 pixels, the smallest type, 7.5 points, has 9
WIDTH = 4.4  # inches
SIZE = 9  # points
ACCURACY = "accuracy, %"

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same bytes on each machine
    "font.size": SIZE,
    "axes.titlesize": SIZE,
    "xtick.labelsize": SIZE - 1,
    "ytick.labelsize": SIZE - 1,
    "legend.fontsize": SIZE - 0.5,
    "legend.frameon": False,
    "figure.titlesize": SIZE + 1,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "text.parse_math": False,  # a title's $ is a dollar
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "twf",  # not random
}


def settings() -> AbstractContextManager[None]:
    """The settings under which figures are drawn and saved; they hold inside a `with`."""
    return matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS, "backend": "agg"})


def svg(draw: Callable[[], Figure]) -> str:
    """A drawing as SVG, the same bytes each time."""
    with settings():
        file = io.StringIO()
        # Without these entries there is no metadata element, which would name the day.
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        draw().savefig(file, format="svg", metadata=metadata)
    # The numbered identifiers are referred to by nothing, and alike in each figure of a page.
    return re.sub(r' id="[a-zA-Z0-9.]*_\d+"', "", file.getvalue())


def panels(
    rows: Sequence[Any],
    columns: Sequence[Any],
    height: float,
    **sharing: Any,
) -> tuple[Figure, dict[tuple[Any, Any], Axes]]:
    """A figure, and its axes by row and column; a row has `height` inches with its words."""
    figure = Figure(figsize=(WIDTH, height * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False, **sharing)
    places = np.ndindex(len(rows), len(columns))
    return figure, {(rows[i], columns[j]): grid[i, j] for i, j in places}


def panels_by_place(
    frame: pd.DataFrame, height: float, x: str, y: str, **sharing: Any
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure, and its panels by protocol down and buffer across, each with its rows.

    The outer panels name the axes. Rows without a buffer are in each panel of their protocol.
    """
    buffers = sorted(set(frame["buffer"]) - {0}) or [0]
    figure, axes = panels(list(frame["protocol"].unique()), buffers, height, **sharing)
    places = []
    for (protocol, buffer), panel in axes.items():
        panel.set(title=show.place(protocol, buffer), xlabel=x, ylabel=y)
        panel.label_outer()
        here = (frame["protocol"] == protocol) & frame["buffer"].isin([0, buffer])
        places.append((panel, frame[here]))
    return figure, places


def legend(figure: Figure, columns: int) -> None:
    """One legend of all panels, below them: each label once. The figure grows by it."""
    handles: dict[str, Any] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    look: Any = {"ncols": min(columns, len(handles)), "handlelength": 2.0, "columnspacing": 1.0}
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", **look)
    lines = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.1 + lines * 1.4 * SIZE / 72)


def line(panel: Axes, x: str, group: pd.DataFrame, **look: Any) -> None:
    """A line through means over column `x`, and a band over their intervals."""
    at, low, high = (group[name].to_numpy(dtype=float) for name in (x, "low", "high"))
    panel.plot(at, group["mean"].to_numpy(), **{"label": group["label"].iloc[0]} | look)
    panel.fill_between(at, low, high, color=look["color"], alpha=0.15, linewidth=0)
