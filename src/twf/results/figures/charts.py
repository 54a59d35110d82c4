"""The drawing of each kind of figure, from its frame under the same name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from twf.results.figures import style
from twf.results.figures.style import ACCURACY
from twf.results.show import buffer_words


def accuracy(frame: pd.DataFrame) -> Figure:
    """Lines over the tasks; a panel per protocol and buffer, with all methods without rehearsal."""
    names = "tasks trained", f"average {ACCURACY}"
    figure, axes = style.panels_by_place(frame, 2.0, *names, sharex=True, sharey="row")
    for panel, rows in axes:
        for method, group in rows.groupby("method", sort=False):
            style.line(panel, "tasks", group, **style.LOOKS[str(method)])
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(axis="y")
        of_row = frame.loc[frame["protocol"].isin(rows["protocol"]), "mean"]
        low, high = _limits(of_row.to_numpy(float))
        panel.set_ylim(max(low, 0), min(high, 101.5))
    style.legend(figure, 3)
    return figure


def differences(frame: pd.DataFrame) -> Figure:
    """Dots with whiskers beside a line at zero, and the paper's; a panel per protocol and buffer.

    A heading stands above what it is of.
    """
    lines: list[tuple[str, str]] = []  # a heading, and a title; none for the heading's own line
    for over, group in frame.groupby("over", sort=False):
        lines += [(str(over), ""), *((str(over), t) for t in dict.fromkeys(group["title"]))]
    height, names = 0.6 + 0.16 * len(lines), ("percentage points", "")
    figure, axes = style.panels_by_place(frame, height, *names, sharey=True, sharex="row")
    for panel, rows in axes:
        panel.axvline(0, color=style.BLACK, linewidth=0.8)
        least, most = _limits(np.append(rows[["mean", "paper"]].to_numpy(float).ravel(), 0.0))
        for row in rows.to_dict("records"):
            _dot(panel, row, lines.index((row["over"], row["title"])), least, most)
        texts = [title or over for over, title in lines]
        panel.set(yticks=range(len(lines)), yticklabels=texts, ylim=(len(lines) - 0.5, -0.6))
        panel.tick_params(axis="y", length=0)
        panel.tick_params(axis="x", labelbottom=True)
        panel.margins(x=0.12)
        panel.grid(axis="x")
    for panel, _ in axes:  # of which the outer ones have words
        for (_, title), label in zip(lines, panel.get_yticklabels(), strict=False):
            label.set_fontweight("normal" if title else "bold")
    if frame["paper"].notna().any():
        style.legend(figure, 2)
    return figure


def _limits(values: np.ndarray) -> tuple[float, float]:
    """What a panel shows: some values, and to each side as much again as these span.

    So one wide interval does not flatten the others.
    """
    low, high = np.nanmin(values), np.nanmax(values)
    room = max(high - low, 1.0)
    return low - room, high + room


def _dot(panel: Axes, row: dict[Any, Any], y: float, least: float, most: float) -> None:
    """A difference with its whisker, and the paper's; a word where all runs diverged.

    An interval that goes beyond what is shown ends in an arrow.
    """
    if not row["n"]:
        look: Any = {"va": "center", "fontsize": style.SIZE - 1.5, "color": style.BLACK}
        panel.annotate("diverged", (0, y), (3, 0), textcoords="offset points", **look)
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


def initialization(frame: pd.DataFrame) -> Figure:
    """What was probed, over the tasks, a line per layer; a row per row of the table."""
    cells = dict(list(frame.groupby(["label", "buffer"], sort=False)))
    names = {"cka": "CKA", "nearest_neighbours": "k-NN, %", "gates_open": "open gates, %"}
    there = [name for name in names if name in set(frame["quantity"])]
    figure, axes = style.panels(list(cells), there, 1.35, sharex=True, sharey="col")
    looks = {
        layer: {"color": colour, "marker": marker, "linestyle": line}
        for layer, colour, marker, line in zip(
            frame["layer"].unique(), style.COLOURS[1:], style.MARKERS, style.LINES, strict=False
        )
    }
    for (cell, quantity), panel in axes.items():
        rows = cells[cell]
        for layer, group in rows[rows["quantity"] == quantity].groupby("layer", sort=False):
            style.line(panel, "tasks", group, label=layer, **looks[layer])
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(axis="y")
        panel.set_ylim(0, 1.03 if quantity == "cka" else 104)
        if quantity == "cka":
            panel.set_title(f"{cell[0]}{buffer_words(cell[1])}", loc="left")
        panel.set_ylabel(names[quantity])
        if cell == list(cells)[-1]:
            panel.set_xlabel("tasks trained")
    style.legend(figure, 3)
    return figure


def shares(frame: pd.DataFrame) -> Figure:
    """A line over the shares, DER++ as it is, and TwF's level; a panel per protocol and buffer.

    At share 0, the line is DER++ with the head that pretraining images need: what they do is seen
    against that point, what the head does between it and DER++ as it is.
    """
    names = "share of the buffer for the source's images, %", f"final average {ACCURACY}"
    figure, axes = style.panels_by_place(frame, 2.1, *names, sharex=True, sharey="row")
    for panel, rows in axes:
        for method, line in rows[rows["share"].notna()].groupby("method", sort=False):
            style.line(panel, "share", line.sort_values("share"), **style.LOOKS[str(method)])
        for row in rows[rows["share"].isna()].to_dict("records"):
            colour = style.LOOKS[row["method"]]["color"]
            panel.axhline(row["mean"], color=colour, linestyle="--", label=row["label"])
            if not pd.isna(row["low"]):
                panel.axhspan(row["low"], row["high"], color=colour, alpha=0.15, linewidth=0)
        panel.set(xticks=sorted(set(frame["share"].dropna())))
        panel.margins(y=0.15)
        panel.grid(axis="y")
    style.legend(figure, 2)
    return figure
