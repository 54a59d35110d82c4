"""The central questions: what TwF gains, and what propagation and stream loss make of it.

A row is a difference between cells, in Class-IL with the smallest buffer, beside the paper's. What
is said of it follows docs/plan.md, by two intervals of the same estimate:

    no effect                   the 90 % interval lies within 1 point of 0: two one-sided tests
    an effect                   the 95 % interval excludes 0
    an effect, below a point    both
    undecided                   neither, or one seed, or a run of its cells diverged

and, of the paper's number: the 95 % interval lies below it, contains it, or lies above it.

A difference between corners of propagation and stream loss is a contrast of the two-way layout of
all four, where each of its seeds, two or more, has all four: no seed that its own cells have is
left out for want of another cell. Anything else follows `contrasts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from twf.files import central_file
from twf.results import contrasts, show, statistics
from twf.results.contrasts import UNMARKED, Marks, Values
from twf.results.frame import Results
from twf.results.printed import CellKey, printed_keys
from twf.results.show import TextRow, number
from twf.results.statistics import Estimate

MARGIN = 1.0  # points to each side of 0 that count as no effect
# Ratio of residual variances above which the layout is not alone. Where a single corner's variance
# is far above the others', the ratio tends to 9, since residuals share it: the check misses that.
UNEVEN = 10.0
CORNERS = ("all", "cl", "f6", "cl-f6")  # of TwF: propagation on, off; F6 published, paper

Terms = Mapping[tuple[str, str], int]  # weights of methods and variants


@dataclass(frozen=True)
class Question:
    """A difference between cells of one place, and what it has to be seen beside."""

    name: str
    statement: str
    of: Terms
    printed: Terms | None = None  # those of the paper's difference; `of` itself by default
    beside: str = ""  # a control, or another explanation


_PRINTED_GAIN = {("twf", "all"): 1, ("twf", "cl"): -1}
QUESTIONS = (
    Question(
        "over-derpp",
        "TwF over DER++",
        {("twf", ""): 1, ("derpp", ""): -1},
        beside="DER++ does not have the stream loss (F6)",
    ),
    Question(
        "over-er-ace",
        "TwF over ER-ACE",
        {("twf", ""): 1, ("er-ace", ""): -1},
        beside="ER-ACE has a restricted stream loss too, and no propagation",
    ),
    Question(
        "propagation",
        "Propagation and its auxiliary loss, with the code's stream loss",
        _PRINTED_GAIN,
        beside="which loss the paper's row {CL} had is not known",
    ),
    Question(
        "propagation-f6",
        "Propagation and its auxiliary loss, with the paper's stream loss",
        {("twf", "f6"): 1, ("twf", "cl-f6"): -1},
        _PRINTED_GAIN,
        beside="which loss the paper's row {CL} had is not known",
    ),
    *(
        Question(
            f"propagation-x{times}",
            f"Propagation with λ_FP times {times}, with the code's stream loss",
            {("twf", f"x{times}"): 1, ("twf", "cl"): -1},
            _PRINTED_GAIN,
            beside="the paper's λ_FP was chosen for 50 epochs per task",
        )
        for times in (10, 30, 100)
    ),
    Question(
        "interaction",
        "Interaction: propagation's gain with the paper's stream loss minus that with the code's",
        {("twf", "f6"): 1, ("twf", "cl-f6"): -1, ("twf", "all"): -1, ("twf", "cl"): 1},
        {},
        beside="above 0, the code's loss takes the place of propagation",
    ),
    Question(
        "stream",
        "The code's stream loss over the paper's, with propagation",
        {("twf", "all"): 1, ("twf", "f6"): -1},
        {},
        beside="the paper does not describe it",
    ),
    Question(
        "stream-alone",
        "The code's stream loss over the paper's, without propagation",
        {("twf", "cl"): 1, ("twf", "cl-f6"): -1},
        {},
        beside="the paper does not describe it",
    ),
    Question(
        "cl-over-derpp",
        "TwF without propagation ({CL}), with the paper's stream loss, over DER++",
        {("twf", "cl-f6"): 1, ("derpp", ""): -1},
        {("twf", "cl"): 1, ("derpp", ""): -1},
        beside="near 0, it suggests that the paper's row {CL} had the paper's loss",
    ),
    Question(
        "cl-published-over-derpp",
        "TwF without propagation ({CL}), with the code's stream loss, over DER++",
        {("twf", "cl"): 1, ("derpp", ""): -1},
        beside="far from the paper's, it suggests that its row {CL} had another loss",
    ),
    Question(
        "cl-over-er-ace",
        "TwF without propagation ({CL}), with the code's stream loss, over ER-ACE",
        {("twf", "cl"): 1, ("er-ace", ""): -1},
        beside="both have a restricted stream loss, and neither has propagation",
    ),
    Question(
        "derpp-stream",
        "DER++ with the code's stream loss over DER++",
        {("derpp", "current"): 1, ("derpp", ""): -1},
        {},
        beside="is the loss enough?",
    ),
    Question(
        "derpp-replay",
        "DER++ with TwF's rate, alpha and beta over DER++",
        {("derpp", "replay"): 1, ("derpp", ""): -1},
        {},
        beside="are they enough?",
    ),
    Question(
        "derpp-both",
        "DER++ with the code's stream loss and TwF's rate, alpha and beta over DER++",
        {("derpp", "current-replay"): 1, ("derpp", ""): -1},
        {},
        beside="are they enough together?",
    ),
    Question(
        "derpp-stream-at-rate",
        "The code's stream loss in DER++ with TwF's rate, alpha and beta",
        {("derpp", "current-replay"): 1, ("derpp", "replay"): -1},
        {},
        beside="the loss alone, both with one rate and weights",
    ),
    *(
        Question(
            f"derpp-{part}",
            f"{of} in DER++ with the code's stream loss and TwF's rate, alpha and beta",
            {("derpp", part): 1, ("derpp", "current-replay"): -1},
            {},
            beside="one of three parts in which it then differs from TwF without propagation",
        )
        for part, of in {
            "batch": "One replay batch",
            "pass": "One forward pass",
            "labels": "Labels among the classes seen",
        }.items()
    ),
    *(
        Question(
            f"cl-frozen-{layers}",
            f"{{CL}} with all but {left} frozen over {{CL}}",
            {("twf", f"cl-frozen-{layers}"): 1, ("twf", "cl"): -1},
            {},
            beside="near 0, there is little for preserved features to gain",
        )
        for layers, left in {4: "the last stage", 5: "the classifier"}.items()
    ),
    Question(
        "over-derpp-stream",
        "TwF over DER++ with the code's stream loss",
        {("twf", "all"): 1, ("derpp", "current"): -1},
        {},
        beside="what of TwF's lead the loss does not explain",
    ),
    Question(
        "cl-over-derpp-both",
        "{CL} over DER++ with the code's stream loss and TwF's rate, alpha and beta",
        {("twf", "cl"): 1, ("derpp", "current-replay"): -1},
        {},
        beside="what is left: one batch of replay, in one pass with new images, labels among those "
        "seen",
    ),
)

SCHEMA = pa.schema(
    [
        ("question", pa.string()),
        ("statement", pa.string()),
        ("benchmark", pa.string()),
        ("source", pa.string()),
        ("buffer", pa.int64()),
        ("printed", pa.float64()),  # the paper's difference; null where it prints none
        ("n", pa.int64()),  # seeds that all its cells have finished
        ("n_diverged", pa.int64()),  # runs of its cells
        ("precisions", pa.list_(pa.string())),  # of its runs: several where they differ
        ("mean", pa.float64()),  # in points of final average accuracy in Class-IL
        ("error", pa.float64()),
        ("freedom", pa.float64()),
        ("low", pa.float64()),  # the ends of the 95 % interval
        ("high", pa.float64()),
        ("model", pa.string()),  # of the interval
        ("uneven", pa.float64()),  # ratio of the corners' residual variances, largest to smallest
        ("welch_low", pa.float64()),  # Welch's over the single corners, where it is above UNEVEN
        ("welch_high", pa.float64()),
        ("said", pa.string()),
        ("size", pa.string()),  # below the paper's, compatible, or above
        ("beside", pa.string()),
    ]
)
COMPARED = show.Compared(
    central_file,
    SCHEMA,
    "Differences of final average accuracy in Class-IL with the smallest buffer, in points, with "
    "95 % intervals (not corrected for how many there are), their model and degrees of freedom "
    "(df). No effect: the 90 % interval lies within a point of 0. An effect: the 95 % interval "
    "excludes 0. Undecided: neither, or one seed, or a run of its cells diverged. "
    f"{show.MIXED}: of runs that differ in precision.",
)


def of_results(results: Results, buffer: int | None = None) -> pd.DataFrame:
    """A row of `SCHEMA` for each question and place whose cells are planned.

    With the smallest buffer, or another one.
    """
    values = contrasts.of_cells(results)
    if buffer is not None:
        values = {key: of for key, of in values.items() if key.buffer in (0, buffer)}
    return answers(values, Marks.of_results(results))


def answers(values: Values, marks: Marks = UNMARKED) -> pd.DataFrame:
    """The same, of the values of cells."""
    printed = printed_keys()
    places = dict.fromkeys(
        key._replace(method="", variant="")
        for key in values
        if key.method == "twf" and key.protocol == "class-il" and key.buffer
    )
    rows = []
    for question in QUESTIONS:
        able = [p for p in places if all(_key(p, term) in values for term in question.of)]
        for place in able:
            others = [p.buffer for p in able if p._replace(buffer=place.buffer) == place]
            if place.buffer == min(others):
                rows.append(_row(question, place, values, printed, marks))
    return pd.DataFrame(rows, columns=SCHEMA.names)


def _key(place: CellKey, term: tuple[str, str]) -> CellKey:
    return place._replace(method=term[0], variant=term[1])


def _row(
    question: Question,
    place: CellKey,
    values: Values,
    printed: Mapping[CellKey, float],
    marks: Marks,
) -> dict[str, Any]:
    keys = {_key(place, term): float(weight) for term, weight in question.of.items()}
    terms = question.of if question.printed is None else question.printed
    row: dict[str, Any] = {
        "question": question.name,
        "statement": question.statement,
        "beside": question.beside,
        "printed": _printed(place, terms, printed),
        "model": "",
        "size": "",
        "welch_low": float("nan"),
    }
    row |= {name: getattr(place, name) for name in ("benchmark", "source", "buffer")}
    found, seeds = contrasts.contrast(values, keys), contrasts.shared(values, keys)
    row |= {"n_diverged": marks.diverged(keys), "precisions": marks.precisions(keys, seeds)}
    row |= found._asdict() | {"said": "undecided" if found.n else "none finished"}
    if not found.n:
        return row
    row["model"] = "Student's, by seed" if len({of.method for of in keys}) == 1 else "Welch's"
    estimate = Estimate(found.mean, found.error, found.freedom)
    corners = [_key(place, ("twf", name)) for name in CORNERS]
    if (
        set(keys) <= set(corners)
        and found.n > 1
        and set(seeds) <= {*contrasts.shared(values, corners)}
    ):
        of_corners = contrasts.stacked(values, corners, seeds)
        estimate = statistics.two_way(of_corners, np.array([keys.get(k, 0.0) for k in corners]))
        spread = (statistics.residuals(of_corners) ** 2).sum(-1)
        row["uneven"] = float(spread.max() / spread.min()) if spread.min() else float("inf")
        row["model"] = "two-way layout of the corners"
        if row["uneven"] > UNEVEN:
            cells = (
                contrasts.stacked(values, list(keys), seeds) * np.array([*keys.values()])[:, None]
            )
            welch = statistics.total([statistics.student(cell) for cell in cells])
            row["welch_low"], row["welch_high"] = map(float, welch.ends())
        row |= {name: float(value) for name, value in estimate._asdict().items()}
        row["low"], row["high"] = map(float, estimate.ends())
    if found.n > 1 and not row["n_diverged"]:
        row |= {"said": effect(estimate), "size": size(estimate, row["printed"])}
    return row


def _printed(place: CellKey, terms: Terms, printed: Mapping[CellKey, float]) -> float:
    """The paper's difference; nan where it does not print all of it."""
    keys = {_key(place, term): weight for term, weight in terms.items()}
    if not keys or any(key not in printed for key in keys):
        return float("nan")
    return sum(weight * printed[key] for key, weight in keys.items())


def effect(estimate: Estimate) -> str:
    """What is said of an estimate in points."""
    low, high = estimate.ends()
    inner_low, inner_high = estimate.ends(0.9)
    none = inner_low > -MARGIN and inner_high < MARGIN
    some = low > 0 or high < 0
    if none and some:
        return "an effect, below a point"
    return "no effect" if none else "an effect" if some else "undecided"


def size(estimate: Estimate, printed: float) -> str:
    """An estimate beside the paper's, by the 95 % interval."""
    low, high = estimate.ends()
    if np.isnan(printed):
        return ""
    if low <= printed <= high:
        return "compatible"
    return "below the paper's" if high < printed else "above the paper's"


def write(results: Results) -> None:
    """Write the answers from a study's collected records, as `files.COMPARISON_FORMATS`."""
    frame = of_results(results)
    COMPARED.write(results.plan, frame, [show.Section("", text_rows(frame))])


def text_rows(frame: pd.DataFrame) -> list[TextRow]:
    """The rows as text, by the heading of each column; a source where a benchmark has several."""
    sources = frame.groupby("benchmark")["source"].transform("nunique")
    named = frame.assign(
        benchmark=frame["benchmark"].where(
            sources == 1, frame["benchmark"] + " from " + frame["source"]
        )
    )
    return [_text_row(row) for row in show.rows(named)]


def _text_row(row: Any) -> TextRow:
    model = "one seed" if row["n"] == 1 else row["model"]
    if row["n"] > 1:
        model += f", {show.freedom(row['freedom'])}"
    if not pd.isna(row["welch_low"]):
        model += (
            f"; Welch's {show.interval(row['welch_low'], row['welch_high'], '+')}, as variances "
            "differ"
        )
    return {
        "Question": row["statement"],
        "Benchmark": row["benchmark"],
        "Paper": number(row["printed"], "+"),
        "Ours": show.estimate(row["mean"], row["low"], row["high"]) + show.mixed(row["precisions"]),
        "Found": row["said"],
        "Beside the paper's": row["size"] or "—",
        "Interval": model or "—",
        "Seeds": f"{row['n']}" + show.diverged(row["n_diverged"]),
        "Caveat": row["beside"],
    }
