"""What the findings write: estimates, claims and drawings in docs, and numbers in pages."""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from twf.files import write_text
from twf.results import figures
from twf.results.findings import Findings, Shown

PAGES = (Path("README.md"), Path("docs/findings.md"), Path("docs/measured.md"))
LOOKS: tuple[dict[str, Any], ...] = (  # of the questions of a figure, in order
    {"color": figures.BLUE, "marker": "o", "linestyle": "-"},
    {"color": figures.VERMILION, "marker": "s", "linestyle": "--"},
)


def _scale(findings: Findings, shown: Shown) -> Drawing:
    """A line per question over the settings, with intervals, beside the paper's number."""
    asked, settings = findings.asked, [findings.asked.settings[at] for at in shown.settings]
    drawing, axes = _axes("points of Class-IL accuracy")
    beside: Any = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
    for shift, name, look in zip((-0.04, 0.04), shown.questions, LOOKS, strict=True):
        estimates = {x: findings.estimate(name, at) for x, at in enumerate(shown.settings)}
        rows = pd.DataFrame({x + shift: row for x, row in estimates.items() if row}).T
        mean, low, high = (rows[end].astype(float) for end in ("mean", "low", "high"))
        axes.errorbar(rows.index, mean, yerr=[mean - low, high - mean], **look)
        title = asked.questions[name].title.replace("*", "").partition(", ")[2]
        last = (rows.index[-1], mean.iloc[-1])
        axes.annotate(f"{title}: {last[1]:.1f}", last, color=look["color"], **beside)
    paper = findings.paper(asked.questions[shown.questions[0]], settings[-1])
    if paper is not None:
        point = (len(settings) - 1, paper)
        axes.plot(*point, marker="*", markersize=12, color=figures.BLACK)
        axes.annotate(f"the paper: {paper:.1f}", point, **beside)
    axes.set_xlim(-0.3, len(settings) + 0.3)
    titles = [setting.title.replace("Split CIFAR-10, ", "") for setting in settings]
    axes.set_xticks(range(len(settings)), [title.replace(", ", ",\n") for title in titles])
    return drawing


def _share(findings: Findings, shown: Shown) -> Drawing:
    """Propagation's gain against the distance's share of the loss: a point per seed."""
    drawing, axes = _axes("TwF with its distance minus {CL}, points")
    for setting, marker in zip(shown.settings, figures.MARKERS, strict=False):
        for number, question in enumerate(shown.questions):
            points, hollow = findings.shares(question, setting), question in shown.hollow
            look = {"color": LOOKS[hollow]["color"], "fillstyle": ("full", "none")[hollow]}
            label = None if number else findings.asked.settings[setting].title
            axes.plot(100 * points["share"], points["gain"], marker, label=label, **look)
    axes.set_xlabel("the distance's share of TwF's loss, per cent (filled: code's stream loss)")
    axes.legend(fontsize=8)
    return drawing


def _axes(label: str) -> tuple[Drawing, Axes]:
    drawing = Drawing(figsize=(7.2, 3.6), layout="constrained")
    axes = drawing.add_subplot(ylabel=label)
    axes.axhline(0, color=figures.GREY, linewidth=0.8)
    return drawing, axes


def write(findings: Findings, docs: Path = Path("docs")) -> list[Path]:
    """Write the tables of estimates and claims, and the figures. Returns what was written."""
    kinds = {"scale": _scale, "share": _share}
    frames = {"estimates": findings.table(), "claims": findings.claims}
    texts = {
        f"{name}.csv": frame.to_csv(index=False, float_format="%.4f")
        for name, frame in frames.items()
    }
    for name, shown in findings.asked.figures.items():
        texts[f"{name}.svg"] = figures.svg(partial(kinds[shown.kind], findings, shown))
    for name, text in texts.items():
        write_text(docs / name, text)
    return [docs / name for name in texts]


def fill(findings: Findings) -> None:
    """Write the evidence's numbers into the marked parts of pages."""
    for path in PAGES:
        write_text(path, findings.filled(path.read_text(encoding="utf-8")))
