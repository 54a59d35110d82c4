"""What the findings write: a table of estimates and drawings in docs, and numbers in pages."""

import math
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from twf.files import atomic
from twf.results.evidence import EVIDENCE
from twf.results.figures import style
from twf.results.findings import Figure, Findings

PAGES = (Path("README.md"), Path("docs/findings.md"), Path("docs/measured.md"))
LOOKS: tuple[dict[str, Any], ...] = (  # of the questions of a figure, in order
    {"color": style.BLUE, "marker": "o", "linestyle": "-"},
    {"color": style.VERMILION, "marker": "s", "linestyle": "--"},
)


def drawn(findings: Findings) -> dict[str, str]:
    """Each figure that `questions.yaml` names, as SVG."""
    kinds = {"scale": _scale, "share": _share}
    return {
        name: style.svg(partial(kinds[shown.kind], findings, shown))
        for name, shown in findings.asked.figures.items()
    }


def _scale(findings: Findings, shown: Figure) -> Drawing:
    """A line per question over the settings, with intervals, beside the paper's number."""
    drawing = Drawing(figsize=(7.2, 3.4), layout="constrained")
    axes = drawing.add_subplot()
    settings = [findings.asked.settings[at] for at in shown.settings]
    for shift, question, look in zip((-0.04, 0.04), shown.questions, LOOKS, strict=True):
        rows = [findings.estimate(question, at) for at in shown.settings]
        there = [(x + shift, row) for x, row in enumerate(rows) if row is not None]
        axes.plot([x for x, _ in there], [row["mean"] for _, row in there], **look)
        for x, row in there:
            if not math.isnan(row["low"]):
                axes.vlines(x, row["low"], row["high"], color=look["color"], linewidth=1.2)
        x, last = there[-1]
        title = findings.asked.questions[question].title.replace("*", "").partition(", ")[2]
        axes.annotate(
            f"{title}: {last['mean']:.1f}",
            (x, last["mean"]),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=look["color"],
        )
    paper = findings.paper(findings.asked.questions[shown.questions[0]], settings[-1])
    if paper is not None:
        x = len(settings) - 1
        axes.plot([x], [paper], marker="*", markersize=12, color=style.BLACK, linestyle="")
        text = f"the paper: {paper:.1f}"
        axes.annotate(text, (x, paper), (8, 0), textcoords="offset points", va="center")
    axes.axhline(0, color=style.GREY, linewidth=0.8)
    axes.set_xlim(-0.3, len(settings) + 0.3)
    titles = [setting.title.replace("Split CIFAR-10, ", "") for setting in settings]
    axes.set_xticks(range(len(settings)), [title.replace(", ", ",\n") for title in titles])
    axes.set_ylabel("points of Class-IL accuracy")
    return drawing


def _share(findings: Findings, shown: Figure) -> Drawing:
    """Propagation's gain against the distance's share of the loss: a point per seed."""
    drawing = Drawing(figsize=(7.2, 3.8), layout="constrained")
    axes: Axes = drawing.add_subplot()
    for setting, marker in zip(shown.settings, style.MARKERS, strict=False):
        for number, question in enumerate(shown.questions):  # under either stream loss, in turn
            points = findings.shares(question, setting)
            axes.plot(
                100 * points["share"],
                points["gain"],
                marker=marker,
                color=LOOKS[number % 2]["color"],
                fillstyle="none" if number % 2 else "full",
                linestyle="",
                label=None if number else findings.asked.settings[setting].title,
            )
    axes.axhline(0, color=style.GREY, linewidth=0.8)
    axes.set_xlabel("share of the distance in TwF's loss, per cent (filled: F6 published)")
    axes.set_ylabel("TwF with its distance minus {CL}, points")
    axes.legend(fontsize=8)
    return drawing


def write(folder: Path = EVIDENCE, docs: Path = Path("docs")) -> list[Path]:
    """Write the table of estimates and the figures into `docs`. Returns what was written."""
    findings = Findings(folder)
    texts = {"estimates.csv": findings.table().to_csv(index=False, float_format="%.4f")}
    texts |= {f"{name}.svg": drawing for name, drawing in drawn(findings).items()}
    for name, text in texts.items():
        with atomic(docs / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return [docs / name for name in texts]


def fill(check: bool = False, pages: tuple[Path, ...] = PAGES) -> list[Path]:
    """Write the evidence's numbers into the marked parts of pages. Returns those that differed.

    With `check`, nothing is written.
    """
    findings, differed = Findings(), []
    for path in pages:
        text = path.read_text(encoding="utf-8")
        filled = findings.filled(text)
        if filled != text:
            differed.append(path)
            if not check:
                with atomic(path) as partial:
                    partial.write_text(filled, encoding="utf-8")
    return differed
