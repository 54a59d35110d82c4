"""Frames that compare methods, as figures: each draws its frame alone."""

from __future__ import annotations

import math
import textwrap
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from twf.results.figures import style
from twf.results.figures.style import ACCURACY
from twf.results.output import PROTOCOL_TITLES


def accuracy(frame: pd.DataFrame) -> Figure:
    """Lines over the tasks; a panel per protocol and buffer, with all methods without rehearsal."""
    names = "tasks trained", f"average {ACCURACY}"
    figure, axes = style.panels_by_place(frame, 2.0, *names, sharex=True, sharey="row")
    for panel, rows in axes:
        for method, group in rows.groupby("method", sort=False):
            style.line(panel, "tasks", group, **style.LOOKS[str(method)])
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(axis="y")
        style.no_more_than_all(panel)
    style.legend(figure, 5)
    return figure


def matrix(frame: pd.DataFrame) -> Figure:
    """Heat maps, a panel per protocol and buffer: task trained down, task evaluated across."""
    tasks = int(frame["evaluated"].max())
    figure, axes = style.panels_by_place(
        frame, min(0.8 + 0.3 * tasks, 2.8), "task evaluated", "task trained"
    )
    edges = np.arange(tasks + 1) + 0.5
    for panel, rows in axes:
        values = rows.pivot_table(index="trained", columns="evaluated", values="mean").to_numpy()
        panel.set(xticks=range(1, tasks + 1), yticks=range(1, tasks + 1), aspect="equal")
        panel.set(xlim=(0.5, tasks + 0.5), ylim=(tasks + 0.5, 0.5))
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
        if not values.size:
            continue
        panel.pcolormesh(edges, edges, values, cmap="cividis", vmin=0, vmax=100)
        for (t, i), value in np.ndenumerate(values):
            text = f"{value:.1f}" if tasks <= 5 and value < 99.95 else f"{value:.0f}"
            ink = "white" if value < 55 else "black"
            size = style.SIZE - 1 if tasks <= 5 else style.SIZE - 2
            look: Any = {"ha": "center", "va": "center", "color": ink, "fontsize": size}
            # inside its panel: the layout, which is slow with thousands of words, need not ask it
            panel.text(i + 1, t + 1, text, in_layout=False, **look)
        steps = np.repeat(edges, 2)  # between the tasks seen and those to come
        panel.plot(steps[1:-1], steps[:-2], color="white", linewidth=1.5)
    return figure


def costs(frame: pd.DataFrame) -> Figure:
    """Points, joined over a method's buffers: buffer, memory and time across, protocols down."""
    sizes = ["none", *map(str, sorted(frame["buffer"].dropna().unique()))]
    places = frame["buffer"].astype("object").fillna("none").astype(str).map(sizes.index)
    hours = frame["seconds"].max() > 2 * 3600
    seconds = frame["seconds"] / (3600 if hours else 1)
    frame = frame.assign(place=places, seconds=seconds)  # buffers evenly spaced
    names = {
        "place": "buffer, images",
        "peak_memory_mib": "peak memory, MiB",
        "seconds": f"time of a run, {'h' if hours else 's'}",
    }
    protocols = list(dict.fromkeys(frame["protocol"]))
    figure, axes = style.panels(protocols, list(names), 1.95, sharey="row", sharex="col")
    for (protocol, column), panel in axes.items():
        rows = frame[(frame["protocol"] == protocol) & frame[column].notna()]
        for method, group in rows.groupby("method", sort=False):
            look = style.LOOKS[str(method)]
            at = group[column].to_numpy(dtype=float)
            panel.plot(at, group["mean"].to_numpy(), label=group["label"].iloc[0], **look)
            panel.vlines(at, group["low"], group["high"], color=look["color"], linewidth=0.8)
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.margins(x=0.1, y=0.1)
        if column == "place":
            panel.set(xticks=range(len(sizes)), xticklabels=sizes, xlim=(-0.4, len(sizes) - 0.6))
        panel.set(xlabel=names[column], ylabel=f"{PROTOCOL_TITLES[protocol]} {ACCURACY}")
        panel.label_outer()
        style.no_more_than_all(panel)
        panel.grid()
    style.legend(figure, 5)
    return figure


def losses(frame: pd.DataFrame) -> Figure:
    """Lines over the epochs of all tasks, which lines separate; a panel per method and buffer."""
    cells = list(frame.groupby(["label", "buffer"], sort=False, dropna=False))
    across = min(3, len(cells))
    figure, grid = style.panels(range(-(-len(cells) // across)), range(across), 1.35, sharey=True)
    panels = list(grid.values())
    terms = [term for term in frame["term"].unique() if term != "loss"]  # no two look alike
    looks: dict[Any, dict[str, Any]] = {
        term: {"color": colour, "linestyle": line, "linewidth": 1}
        for term, colour, line in zip(
            terms, cycle(style.COLOURS[1:]), cycle(style.LINES), strict=False
        )
    }
    looks["loss"] = {"color": style.BLACK, "linewidth": 0.7}
    for ((label, buffer), rows), panel in zip(cells, panels, strict=False):
        for term, group in rows.groupby("term", sort=False):
            name = "loss, the sum" if term == "loss" else str(term).replace("_", " ")
            epochs, means = group["epoch"].to_numpy(float), group["mean"].to_numpy()
            panel.plot(epochs, means, label=name, **looks[term])
        for first in rows.groupby("task")["epoch"].min().iloc[1:]:
            panel.axvline(first - 0.5, color="#AAAAAA", linewidth=0.5, zorder=1)
        panel.set(title=textwrap.fill(f"{label}{style.buffer_words(buffer)}", 22))
        panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        panel.grid(axis="y")
        _scale_losses(panel, frame["mean"].min(), frame["mean"].max())
    for panel in panels[len(cells) :]:
        panel.set_visible(False)
    for panel in panels[len(cells) - across : len(cells)]:
        panel.set_xlabel("epoch, over all tasks")
    for panel in panels[::across]:
        panel.set_ylabel("loss")
    style.legend(figure, 4)
    return figure


def _scale_losses(panel: Axes, low: float, high: float) -> None:
    """A scale for terms that differ by powers of ten and may be zero, or below."""
    powers = [10.0**power for power in range(-3, 2 + max(-3, math.floor(math.log10(high or 1))))]
    below = [-power for power in powers if low <= -power]
    panel.set_yscale("symlog", linthresh=1e-3)
    panel.yaxis.set_major_locator(FixedLocator([*below, 0, *powers]))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
