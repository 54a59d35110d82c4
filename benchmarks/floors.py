"""The figure of docs/speed.md: a training step's time on a GPU beside its floor.

    python -m benchmarks.floors

writes docs/floors.svg from measurements in `benchmarks/results/`; nothing is measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from benchmarks import command
from benchmarks.report import RESULTS
from twf.results.figures import kinds, style
from twf.study.methods import METHODS

DRAWING = Path("docs/floors.svg")
FILES = ("h200-fewer-operations.json", "h200.json")  # a method's rows are of the first that has it
LOOKS: dict[str, dict[str, Any]] = {
    "published code": {"color": style.VERMILION, "marker": "D", "fillstyle": "none"},
    "ours, plain": {"color": style.SKY, "marker": "s"},
    "ours, captured": {"color": style.BLUE, "marker": "o"},
    "floor": {"color": style.BLACK, "marker": "|", "markersize": 10, "markeredgewidth": 2},
}
TITLE = [
    "A training step on an H200: Split CIFAR-10, width 64",
    "Floor: the step's bytes at the measured bandwidth of a copy. The published code ran in TF32.",
]


def measured() -> pd.DataFrame:
    """Rows of `method`, `precision`, `what` (of `LOOKS`) and `milliseconds`."""
    rows: list[dict[str, Any]] = []
    for name in FILES:
        before = {row["method"] for row in rows}
        for row in json.loads((RESULTS / name).read_text(encoding="utf-8"))["rows"]:
            if "times_reference" in row and row["method"] not in before:
                step = {key: row[key] for key in ("method", "precision")}
                time = row["milliseconds"]
                rows.append(step | {"what": f"ours, {row['execution']}", "milliseconds": time})
                if row["execution"] == "captured":
                    theirs, floor = time * row["times_reference"], time * row["share_of_copy"]
                    rows.append(step | {"what": "published code", "milliseconds": theirs})
                    rows.append(step | {"what": "floor", "milliseconds": floor})
    rows.sort(key=lambda row: (list(METHODS).index(row["method"]), row["precision"] == "bf16"))
    return pd.DataFrame(rows)


def chart(frame: pd.DataFrame) -> Figure:
    """Marks on a logarithmic axis; a line for each method and precision."""
    steps = list(dict.fromkeys(zip(frame["method"], frame["precision"], strict=True)))
    figure, axes = style.panels([None], [None], 0.5 + 0.22 * len(steps))
    (panel,) = axes.values()
    for what, look in LOOKS.items():
        rows = frame[frame["what"] == what]
        places = [steps.index(step) for step in zip(rows["method"], rows["precision"], strict=True)]
        panel.plot(rows["milliseconds"], places, linestyle="none", label=what, **look)
    names = [f"{METHODS[method].title}, {precision}" for method, precision in steps]
    panel.set(xscale="log", xlabel="milliseconds", yticks=range(len(steps)), yticklabels=names)
    panel.set_ylim(len(steps) - 0.5, -0.5)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.grid(axis="x")
    style.legend(figure, 2)
    return figure


def drawn() -> bytes:
    """The figure as SVG."""
    return kinds.as_svg(chart, measured(), TITLE)


def main() -> None:
    """Draw the figure."""
    DRAWING.write_bytes(drawn())


if __name__ == "__main__":
    command(main)
