"""Frames that compare variants, as figures: each draws its frame alone."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from twf.results.figures import style
from twf.results.figures.style import ACCURACY
from twf.results.tables import PROTOCOL_TITLES
from twf.study.methods import METHODS


def final(frame: pd.DataFrame) -> Figure:
    """Bars, a group per method or variant and a bar per buffer; a panel per protocol."""
    protocols, labels = style.protocols_of(frame), list(dict.fromkeys(frame["label"]))
    buffers = sorted(set(style.integers(frame["buffer"])), key=lambda buffer: buffer or 0)
    bars = frame.groupby(["protocol", "label"]).size().max()
    height = 0.7 + len(labels) * (0.1 + 0.13 * bars)
    figure, axes = style.panels([None], protocols, height, sharey=True, sharex=True)
    sized = [buffer for buffer in buffers if buffer is not None]
    blues = matplotlib.colormaps["Blues"](np.linspace(0.25, 0.65, max(len(sized), 2)))
    looks: dict[int | None, dict[str, Any]] = {
        buffer: {"color": colour, "label": f"buffer {buffer}"}
        for buffer, colour in zip(sized, blues, strict=False)
    }
    looks[None] = {"color": "white", "hatch": "/////", "label": "no buffer"}
    for (_, protocol), panel in axes.items():
        for y, label in enumerate(labels):
            group = frame[(frame["protocol"] == protocol) & (frame["label"] == label)]
            for row, offset in zip(group.to_dict("records"), _offsets(len(group)), strict=True):
                look = looks[None if pd.isna(row["buffer"]) else int(row["buffer"])]
                _bar(panel, row, y + offset, 0.8 / bars, look)
        panel.set(xlim=(0, 118), xticks=range(0, 101, 20), yticks=range(len(labels)))
        panel.set(yticklabels=labels, ylim=(len(labels) - 0.4, -0.6))
        panel.set(xlabel=f"final average {ACCURACY}", title=PROTOCOL_TITLES[protocol])
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x")
    if sized:
        style.legend(figure, list(axes.values()), 4)
    return figure


def _bar(panel: Axes, row: dict[Any, Any], y: float, height: float, look: dict[str, Any]) -> None:
    """A bar with its whisker and its value; a word where all runs diverged."""
    end, text = 0.0, "diverged"
    if row["n"]:
        panel.barh(y, row["mean"], height * 0.9, edgecolor="#333333", linewidth=0.5, **look)
        end, text = row["mean"], f"{row['mean']:.1f}"
        if row["diverged"]:
            text += f", {row['diverged']} diverged"
    if not pd.isna(row["low"]):
        panel.plot([row["low"], row["high"]], [y, y], color=style.BLACK, linewidth=1)
        end = row["high"]
    style.note(panel, text, (end, y), (3, 0))


def _offsets(count: int) -> np.ndarray:
    """Where the bars of a group stand, from its middle."""
    return (np.arange(count) - (count - 1) / 2) * 0.8 / max(count, 1)


def fidelity(frame: pd.DataFrame) -> Figure:
    """Dots beside a line at zero, variants below their method; a panel per protocol and buffer."""
    lines: list[tuple[str, str]] = []  # method and variant's title; none for a method's heading
    for method, group in frame.groupby("method", sort=False):
        lines += [(str(method), ""), *((str(method), t) for t in dict.fromkeys(group["title"]))]
    places = [(p, b) for p in style.protocols_of(frame) for b in style.buffers_of(frame)]
    height = 0.7 + 0.175 * len(lines)
    figure, axes = style.panels([None], places, height, sharey=True, sharex=True)
    for (_, (protocol, buffer)), panel in axes.items():
        panel.axvline(0, color=style.BLACK, linewidth=0.8)
        shown = frame[(frame["protocol"] == protocol) & style.with_buffer(frame, buffer)]
        for row in shown.to_dict("records"):
            _dot(panel, row, lines.index((row["method"], row["title"])))
        panel.set(yticks=range(len(lines)), ylim=(len(lines) - 0.5, -0.6))
        panel.tick_params(axis="y", length=0)
        panel.set(title=style.place(protocol, buffer), xlabel="change, percentage points")
        panel.margins(x=0.12)
        panel.grid(axis="x")
    first = axes[None, places[0]]
    first.set_yticklabels([title or _base(frame, method) for method, title in lines])
    for (_, title), text in zip(lines, first.get_yticklabels(), strict=True):
        text.set_fontweight("normal" if title else "bold")
    return figure


def _base(frame: pd.DataFrame, method: str) -> str:
    """A method's heading: what its changes are from."""
    bases = frame[frame["method"] == method].drop_duplicates(["protocol", "buffer"])
    values = " / ".join(f"{base:.1f} %" for base in bases["base"])
    return f"{METHODS[method].title}, base {values}"


def _dot(panel: Axes, row: dict[Any, Any], y: float) -> None:
    """A change with its whisker; a word where all runs diverged."""
    look = style.METHOD_STYLES[row["method"]]
    if not row["n"]:
        style.note(panel, "diverged", (0, y), (4, 0))
        return
    if not pd.isna(row["low"]):
        panel.plot([row["low"], row["high"]], [y, y], color=look.colour, linewidth=1)
    panel.plot(row["mean"], y, linestyle="none", color=look.colour, marker=look.marker)


def initialization(frame: pd.DataFrame) -> Figure:
    """CKA above k-NN accuracy, over the tasks, a line per layer; a column per row of the table."""
    columns = list(dict.fromkeys(zip(frame["label"], style.integers(frame["buffer"]), strict=True)))
    names = {
        "cka": "CKA with the network\nbefore training",
        "nearest_neighbours": "k-NN accuracy\non the source, %",
    }
    figure, axes = style.panels(list(names), columns, 1.8, sharex=True, sharey="row")
    looks = dict(zip(dict.fromkeys(frame["layer"]), range(len(style.COLOURS)), strict=False))
    for (quantity, (label, buffer)), panel in axes.items():
        of = (
            (frame["quantity"] == quantity)
            & (frame["label"] == label)
            & style.exactly(frame, buffer)
        )
        for layer, group in frame[of].groupby("layer", sort=False):
            i = looks[layer]
            look = {"color": style.COLOURS[i], "marker": style.MARKERS[i]}
            style.line(panel, group["tasks"], group, label=layer, linestyle=style.LINES[i], **look)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(axis="y")
        if quantity == "cka":
            panel.set(ylim=(0, 1.03), title=f"{label}{style.buffer_words(buffer)}")
        else:
            panel.set(ylim=(0, 104), xlabel="tasks trained")
    for quantity, name in names.items():
        axes[quantity, columns[0]].set_ylabel(name)
    style.legend(figure, list(axes.values()), 5)
    return figure


def shares(frame: pd.DataFrame) -> Figure:
    """A line over the shares, and one at TwF's level; a panel per protocol and buffer."""
    protocols = style.protocols_of(frame)
    buffers = list(dict.fromkeys(style.integers(frame["buffer"])))
    width = style.WIDTH if len(buffers) > 1 else style.NARROW
    figure, axes = style.panels(protocols, buffers, 2.1, width, sharex=True, sharey="row")
    for (protocol, buffer), panel in axes.items():
        shown = frame[(frame["protocol"] == protocol) & style.exactly(frame, buffer)]
        line = shown[shown["share"].notna()].sort_values("share")
        look = style.method_line("derpp-pretraining")
        style.line(panel, line["share"], line, label=METHODS["derpp"].title, **look)
        for row in shown[shown["share"].isna()].to_dict("records"):
            colour = style.METHOD_STYLES[row["method"]].colour
            panel.axhline(row["mean"], color=colour, linestyle="--", label=row["label"])
            if not pd.isna(row["low"]):
                panel.axhspan(row["low"], row["high"], color=colour, alpha=0.15, linewidth=0)
        panel.set(xticks=sorted(set(frame["share"].dropna())))
        panel.margins(y=0.15)
        panel.grid(axis="y")
    style.name_panels(
        axes, f"final average {ACCURACY}", "share of the buffer for the source's images, %"
    )
    style.legend(figure, list(axes.values()), 2)
    return figure
