"""Frames that compare methods, as figures: each draws its frame alone."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from twf.results.figures import style
from twf.results.figures.style import ACCURACY
from twf.results.tables import PROTOCOL_TITLES


def accuracy(frame: pd.DataFrame) -> Figure:
    """Lines over the tasks; a panel per protocol and buffer, with all methods without rehearsal."""
    protocols, buffers = style.protocols_of(frame), style.buffers_of(frame)
    figure, axes = style.panels(protocols, buffers, 2.0, sharex=True, sharey="row")
    for (protocol, buffer), panel in axes.items():
        shown = frame[(frame["protocol"] == protocol) & style.with_buffer(frame, buffer)]
        for method, group in shown.groupby("method", sort=False):
            style.line(
                panel,
                group["tasks"],
                group,
                label=style.label_of(group),
                **style.method_line(method),
            )
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(axis="y")
        style.no_more_than_all(panel)
    style.name_panels(axes, f"average {ACCURACY}", "tasks trained")
    style.legend(figure, list(axes.values()), 5)
    return figure


def matrix(frame: pd.DataFrame) -> Figure:
    """Heat maps, a panel per protocol and buffer: task trained down, task evaluated across."""
    protocols = style.protocols_of(frame)
    buffers = list(dict.fromkeys(style.integers(frame["buffer"])))
    tasks = int(frame["evaluated"].max())
    height = min(0.8 + 0.3 * tasks, 2.8)
    if len(buffers) > 1:
        figure, axes = style.panels(protocols, buffers, height)
    else:  # side by side
        figure, turned = style.panels(buffers, protocols, height)
        axes = {(protocol, buffer): panel for (buffer, protocol), panel in turned.items()}
    colours = matplotlib.colormaps["cividis"]
    for (protocol, buffer), panel in axes.items():
        shown = frame[(frame["protocol"] == protocol) & style.exactly(frame, buffer)]
        values = shown.pivot_table(index="trained", columns="evaluated", values="mean").to_numpy()
        panel.set(xticks=range(1, tasks + 1), yticks=range(1, tasks + 1), aspect="equal")
        panel.set(xlim=(0.5, tasks + 0.5), ylim=(tasks + 0.5, 0.5))
        panel.set(xlabel="task evaluated", ylabel="task trained")
        panel.set_title(style.place(protocol, buffer))
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
        if not values.size:
            continue
        edges = np.arange(tasks + 1) + 0.5
        panel.pcolormesh(edges, edges, values, cmap=colours, vmin=0, vmax=100)
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
    protocols = style.protocols_of(frame)
    names = {
        "buffer": "buffer, images",
        "peak_memory_mib": "peak memory, MiB",
        "seconds": "time of a run, s",
    }
    if frame["seconds"].max() > 2 * 3600:
        frame = frame.assign(seconds=frame["seconds"] / 3600)
        names["seconds"] = "time of a run, h"
    figure, axes = style.panels(protocols, list(names), 1.95, sharey="row", sharex="col")
    sizes = sorted(set(style.integers(frame["buffer"])), key=lambda size: size or 0)
    for (protocol, column), panel in axes.items():
        for method, group in frame[frame["protocol"] == protocol].groupby("method", sort=False):
            group = group[group[column].notna()] if column != "buffer" else group
            x: Any = group[column]
            if column == "buffer":  # evenly spaced, however different
                x = pd.Series([sizes.index(s) for s in style.integers(x)], dtype="float64")
            look = style.method_line(method)
            at = x.to_numpy(dtype=float)
            panel.plot(at, group["mean"].to_numpy(), label=style.label_of(group), **look)
            panel.vlines(at, group["low"], group["high"], color=look["color"], linewidth=0.8)
        if column == "buffer":
            texts = ["none" if size is None else f"{size}" for size in sizes]
            panel.set(xticks=range(len(sizes)), xticklabels=texts)
            panel.set(xlim=(-0.4, len(sizes) - 0.6))
        else:
            panel.xaxis.set_major_locator(MaxNLocator(4))
            panel.margins(x=0.1)
        panel.margins(y=0.1)
        style.no_more_than_all(panel)
        panel.grid()
        if protocol == protocols[-1]:
            panel.set_xlabel(names[column])
    for protocol in protocols:
        axes[protocol, "buffer"].set_ylabel(f"{PROTOCOL_TITLES[protocol]} {ACCURACY}")
    style.legend(figure, list(axes.values()), 5)
    return figure


def losses(frame: pd.DataFrame) -> Figure:
    """Lines over the epochs of all tasks, which lines separate; a panel per method and buffer."""
    cells = list(dict.fromkeys(zip(frame["label"], style.integers(frame["buffer"]), strict=True)))
    across = min(3, len(cells))
    rows = range(-(-len(cells) // across))
    figure, grid = style.panels(rows, range(across), 1.35, sharey=True)
    panels = list(grid.values())
    looks = _term_looks(frame)
    for (label, buffer), panel in zip(cells, panels, strict=False):
        shown = frame[(frame["label"] == label) & style.exactly(frame, buffer)]
        for term, group in shown.groupby("term", sort=False):
            name = "loss, the sum" if term == "loss" else str(term).replace("_", " ")
            epochs, means = group["epoch"].to_numpy(float), group["mean"].to_numpy()
            panel.plot(epochs, means, label=name, **looks[term])
        for first in shown.groupby("task")["epoch"].min().iloc[1:]:
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
    style.legend(figure, panels[: len(cells)], 4)
    return figure


def _term_looks(frame: pd.DataFrame) -> dict[Any, dict[str, Any]]:
    """What each term is drawn with: no two alike, and their sum in black."""
    terms = [term for term in dict.fromkeys(frame["term"]) if term != "loss"]
    colours = style.COLOURS[1:]
    looks: dict[Any, dict[str, Any]] = {
        term: {
            "color": colours[i % len(colours)],
            "linestyle": style.LINES[i % len(style.LINES)],
            "linewidth": 1,
        }
        for i, term in enumerate(terms)
    }
    return looks | {"loss": {"color": style.BLACK, "linewidth": 0.7}}


def _scale_losses(panel: Axes, low: float, high: float) -> None:
    """A scale for terms that differ by powers of ten and may be zero, or below."""
    powers = [10.0**power for power in range(-3, 2 + max(-3, math.floor(math.log10(high or 1))))]
    below = [-power for power in powers if low <= -power]
    panel.set_yscale("symlog", linthresh=1e-3)
    panel.yaxis.set_major_locator(FixedLocator([*below, 0, *powers]))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
