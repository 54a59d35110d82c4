"""The paper's claims as tests: on the paper's own numbers, and on a study's.

The value of a claim is a margin in points of FAA: of each cell over the strongest of its rivals,
and of these the smallest (where the claim is of every cell) or the mean. On the paper's numbers,
which have no seeds, a claim holds where the value is positive. On ours it is evaluated on the
seeds that all its cells have finished, paired by seed:

    holds            Student's 95 % interval of each paired difference lies above 0 (for a claim of
                     the mean: that of the mean difference), and no cell is missing
    does not hold    one of these intervals lies below 0 (for a mean: and no cell is missing)
    undecided        anything else: also with a single seed, which has no interval
    not run          no cell has a finished seed in common with all its rivals

The probability that a claim holds is the share of bootstrap samples of the seeds in which the
value is positive. Few seeds make it too sure of itself (see `statistics`), so it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from twf.files import claims_file
from twf.results import output, statistics
from twf.results.output import Row, Texts, number
from twf.results.paper.claims import CLAIMS, Claim, Contest
from twf.results.published import CellKey, planned, published
from twf.results.runs import Runs
from twf.results.statistics import Interval

Accuracies = Mapping[CellKey, Mapping[int, float]]  # FAA by cell and seed, empty where none is

SCHEMA = pa.schema(
    [
        ("claim", pa.string()),
        ("statement", pa.string()),
        ("measure", pa.string()),  # smallest or mean: what the values are
        ("published_value", pa.float64()),  # of the paper's numbers; null where it prints none
        ("published_cells", pa.int64()),
        ("published_verdict", pa.string()),  # holds, does not hold, or no numbers
        ("value", pa.float64()),  # points of FAA; null where nothing can be paired
        ("student_low", pa.float64()),  # decides the verdict
        ("student_high", pa.float64()),
        ("probability", pa.float64()),  # that the value is positive; null with fewer than 2 seeds
        # Probability that a cell beats all its rivals on a seed: mean over cells, ties half
        ("improvement", pa.float64()),
        ("improvement_low", pa.float64()),  # by statistics.bootstrap_interval
        ("improvement_high", pa.float64()),
        ("weakest", pa.string()),  # the cell whose margin is smallest
        ("weakest_margin", pa.float64()),
        ("n_cells", pa.int64()),  # that the study has
        ("n_cells_run", pa.int64()),  # with a finished seed, as have their rivals
        ("n_seeds", pa.int64()),  # that these have in common
        ("verdict", pa.string()),
    ]
)


@dataclass(frozen=True)
class Paired:
    """The contests of a claim that can be evaluated, on the seeds that all of them have."""

    every: bool
    ours: NDArray[np.float64]  # FAA [contest, seed]
    rivals: list[NDArray[np.float64]]  # FAA [rival, seed] of each contest

    def margins(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of each contest on samples of the seeds: `[..., seed]` gives `[contest, ...]`."""
        best = [others[:, positions].mean(-1).max(0) for others in self.rivals]
        return self.ours[:, positions].mean(-1) - np.stack(best)

    def value(self, margins: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the claim says is positive, of margins `[contest, ...]`."""
        return margins.min(0) if self.every else margins.mean(0)

    def interval(self) -> Interval | None:
        """The least ends of Student's intervals of the paired differences that decide."""
        pairs = zip(self.ours, self.rivals, strict=True)
        if self.every:
            differences = [own - other for own, others in pairs for other in others]
        else:  # over the rival that is strongest in the mean
            strongest = [own - others[others.mean(1).argmax()] for own, others in pairs]
            differences = [np.mean(strongest, axis=0)]
        found = [statistics.student_interval(list(values)) for values in differences]
        intervals = [interval for interval in found if interval is not None]
        if not intervals:
            return None
        return Interval(min(i.low for i in intervals), min(i.high for i in intervals))


def pair(claim: Claim, contests: list[Contest], faa: Accuracies) -> Paired | None:
    """Pair the cells of some contests of a claim by seed; None where they share none."""
    seeds = sorted(set.intersection(*(_seeds(contest, faa) for contest in contests)))
    if not seeds:
        return None

    def over_seeds(key: CellKey) -> list[float]:
        return [faa[key][seed] for seed in seeds]

    ours = np.array([over_seeds(contest.cell) for contest in contests])
    rivals = [np.array([over_seeds(rival) for rival in c.rivals]) for c in contests]
    return Paired(claim.every, ours, rivals)


def _seeds(contest: Contest, faa: Accuracies) -> set[int]:
    """The seeds that a contest's cells all have."""
    return set.intersection(*(set(faa[key]) for key in (contest.cell, *contest.rivals)))


def evaluate(claim: Claim, faa: Accuracies) -> Row:
    """A claim on measured accuracies: the columns of `SCHEMA` without the published ones."""
    contests = claim.contests(faa.keys())
    run = [contest for contest in contests if _seeds(contest, faa)]
    row = {"n_cells": len(contests), "n_cells_run": len(run), "n_seeds": 0}
    if not run:
        return row | {"verdict": "not run"}
    paired = pair(claim, run, faa)
    if paired is None:
        return row | {"verdict": "undecided"}
    seeds = paired.ours.shape[1]
    margins = paired.margins(np.arange(seeds))
    weakest = int(margins.argmin())
    interval = paired.interval()
    best = np.stack([others.max(0) for others in paired.rivals])  # [contest, seed]
    wins = np.where(paired.ours == best, 0.5, paired.ours > best)  # ties count half
    improvement = wins.mean(0).tolist()  # by seed
    return row | {
        "value": float(paired.value(margins)),
        **statistics.ends("student", interval),
        "probability": _probability(paired),
        "improvement": statistics.mean(improvement),
        **statistics.ends("improvement", statistics.bootstrap_interval(improvement)),
        "weakest": str(run[weakest].cell),
        "weakest_margin": float(margins[weakest]),
        "n_seeds": seeds,
        "verdict": _verdict(claim, interval, complete=run == contests),
    }


def _probability(paired: Paired) -> float | None:
    """The share of bootstrap samples of the seeds in which the value is positive, ties half."""
    seeds = paired.ours.shape[1]
    if seeds < 2:
        return None
    values = paired.value(paired.margins(statistics.resamples(seeds)))
    return float(np.mean((values > 0) + (values == 0) / 2))


def _verdict(claim: Claim, interval: Interval | None, complete: bool) -> str:
    if interval is None:
        return "undecided"
    if interval.low > 0 and complete:
        return "holds"
    if interval.high < 0 and (complete or claim.every):
        return "does not hold"
    return "undecided"


def on_published(claim: Claim) -> Row:
    """A claim on the paper's own numbers, as if of one seed: the published columns of `SCHEMA`."""
    faa = {cell.key: {0: cell.faa} for cell in published()}
    contests = claim.contests(faa.keys())
    if not contests:
        return {"published_cells": 0, "published_verdict": "no numbers"}
    value = float(evaluate(claim, faa)["value"])
    return {
        "published_value": value,
        "published_cells": len(contests),
        "published_verdict": "holds" if value > 0 else "does not hold",
    }


def measured(runs: Runs) -> Accuracies:
    """The FAA of each cell of a study by seed, of its finished runs."""
    return {key: runs.faa(cell, key.protocol) for key, cell in planned(runs.plan).items()}


def evaluate_all(runs: Runs) -> list[Row]:
    """A row of `SCHEMA` for each of `CLAIMS`."""
    faa = measured(runs)
    return [
        output.complete(
            {"claim": claim.name, "statement": claim.statement}
            | {"measure": "smallest" if claim.every else "mean"}
            | on_published(claim)
            | evaluate(claim, faa),
            SCHEMA,
        )
        for claim in CLAIMS
    ]


def write(runs: Runs) -> None:
    """Write the claims from the study's collected records, as `files.COMPARISON_FORMATS`."""
    long = evaluate_all(runs)
    file = partial(claims_file, runs.plan.study)
    output.write_long(long, SCHEMA, file)
    values = {"study": runs.plan.study, "entries": [entry(row) for row in long]}
    output.write_text("claims.md.j2", values, file("md"))


def entry(row: Row) -> Texts:
    """A row as text, by the heading of each column."""
    printed, low, high = (row[n] for n in ("published_value", "student_low", "student_high"))
    ends = "" if low is None else f" [{low:+.2f}, {high:+.2f}]"
    return {
        "Claim": row["statement"],
        "Margin": row["measure"],
        "Paper's numbers": row["published_verdict"]
        + ("" if printed is None else f", {printed:+.2f}"),
        "Ours": number(row["value"], "+") + ends,
        "Probability": number(row["probability"]),
        "Cells run": f"{row['n_cells_run']}/{row['n_cells']}",
        "Seeds": str(row["n_seeds"]),
        "Verdict": row["verdict"],
        "Weakest cell": row["weakest"] or "—",
    }
