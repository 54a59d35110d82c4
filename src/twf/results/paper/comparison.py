"""The paper's printed cells beside a study's: difference, verdict, command and cost of each.

The paper prints no spread and no number of seeds, so the verdict rests on our seeds alone. It
compares Student's 95 % interval of our mean FAA with the paper's value and a margin around it:

    equivalent   the interval lies within the margin
    higher       it lies above the margin: we measure more than the paper prints
    lower        it lies below the margin
    undecided    anything else: the interval crosses an end of the margin, or there is none
                 (one seed), or all runs diverged
    not run      no run has finished or diverged

The margin is `MARGIN`, one point to each side. It has to be wide enough for what the paper leaves
out (its value may be one run's), and narrow enough to mean something: its claims rest on gains of
2.8 to 4.8 points, so that two cells, each equivalent to the paper's, keep such an order. Student's
interval and not the bootstrap's: that is too short for few seeds, and would decide too often. Some
5 % of intervals miss their true mean: of 144 verdicts, expect a few to be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa

from twf.files import comparison_file, record_file
from twf.learning.evaluation import metrics
from twf.results import output, record, statistics, tables
from twf.results.published import PUBLISHED_VARIANTS, CellKey, planned, published
from twf.results.statistics import Interval
from twf.study import Plan, expand
from twf.study.methods import METHODS
from twf.study.params import Params

MARGIN = 1.0  # points of FAA to each side of the paper's value

VERDICTS = ("equivalent", "higher", "lower", "undecided", "not run")

SCHEMA = pa.schema(
    [
        ("published_table", pa.int64()),  # of the paper, from 1
        ("benchmark", pa.string()),
        ("source", pa.string()),
        ("method", pa.string()),
        ("variant", pa.string()),  # of Table 4; null elsewhere
        ("buffer", pa.int64()),  # null without
        ("protocol", pa.string()),
        # All in per cent; null where there is none.
        ("published_faa", pa.float64()),
        ("published_ff", pa.float64()),
        ("n", pa.int64()),  # finished runs: those that the means are over
        ("n_planned", pa.int64()),
        ("n_diverged", pa.int64()),
        ("faa_mean", pa.float64()),
        ("faa_low", pa.float64()),  # by statistics.bootstrap_interval
        ("faa_high", pa.float64()),
        ("faa_student_low", pa.float64()),  # by statistics.student_interval: decides the verdict
        ("faa_student_high", pa.float64()),
        ("ff_mean", pa.float64()),  # by metrics.forgetting, as the published code has it
        ("ff_low", pa.float64()),  # by statistics.bootstrap_interval
        ("ff_high", pa.float64()),
        ("faa_difference", pa.float64()),  # ours minus the paper's
        ("ff_difference", pa.float64()),
        ("verdict", pa.string()),  # one of VERDICTS, on FAA
        ("gpu_hours", pa.float64()),  # of its runs on CUDA devices; null without such a run
        ("devices", pa.list_(pa.string())),  # these devices
        ("study", pa.string()),  # whose runs make the cell; null where no study has it
        ("command", pa.string()),  # makes these runs
        ("runs", pa.list_(pa.string())),  # all of them, by seed
    ]
)


def verdict(published_faa: float, n: int, n_diverged: int, interval: Interval | None) -> str:
    """One of `VERDICTS` for a cell's mean FAA, by the criterion above."""
    if n + n_diverged == 0:
        return "not run"
    if interval is None:
        return "undecided"
    low, high = interval.low - published_faa, interval.high - published_faa
    if max(abs(low), abs(high)) <= MARGIN:
        return "equivalent"
    if low > MARGIN:
        return "higher"
    return "lower" if high < -MARGIN else "undecided"


def compare(params: Params, plan: Plan, runs: pa.Table) -> pd.DataFrame:
    """The columns of `SCHEMA`, a row for each published cell, in the order of the paper's tables.

    A cell that the study does not have is not run; its command is that of the first other study of
    params.yaml that has it with the paper's hyperparameters. A run that serves several cells counts
    in the cost of each.
    """
    rows = tables.records(plan, runs)
    others = [
        n for n, s in params.studies.items() if n != plan.study and s.best_hyperparameters is None
    ]
    studies = [(plan.study, planned(plan)), *((o, planned(expand(params, o))) for o in others)]
    long = []
    for cell in published():
        study, of_cell = next(
            ((name, cells[cell.key]) for name, cells in studies if cell.key in cells), (None, {})
        )
        found = (
            [rows[run] for run in of_cell.values() if run in rows] if study == plan.study else []
        )
        long.append(
            cell.key._asdict()
            | {"published_table": cell.table, "published_faa": cell.faa, "published_ff": cell.ff}
            | _measured(cell.key, cell.faa, cell.ff, found)
            | _cost(found)
            | {"n_planned": len(of_cell), "study": study, "runs": list(of_cell.values())}
            | {"command": study and _command(study, of_cell.values())}
        )
    return output.to_frame(long, SCHEMA)


def _measured(
    key: CellKey, published_faa: float, published_ff: float | None, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the records of a cell say beside the paper's values."""
    matrices = [tables.accuracy(r, key.protocol) for r in rows if r["status"] == "finished"]
    faa = [metrics.final_average_accuracy(matrix) for matrix in matrices]
    ff = [value for matrix in matrices if (value := metrics.forgetting(matrix)) is not None]
    diverged = sum(row["status"] == "diverged" for row in rows)
    interval = statistics.student_interval(faa)
    faa_mean, ff_mean = statistics.mean(faa), statistics.mean(ff)
    return {
        "n": len(faa),
        "n_diverged": diverged,
        "faa_mean": faa_mean,
        **output.ends("faa", statistics.bootstrap_interval(faa)),
        **output.ends("faa_student", interval),
        "ff_mean": ff_mean,
        **output.ends("ff", statistics.bootstrap_interval(ff)),
        "faa_difference": _difference(faa_mean, published_faa),
        "ff_difference": _difference(ff_mean, published_ff),
        "verdict": verdict(published_faa, len(faa), diverged, interval),
    }


def _difference(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs


def _cost(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Hours on GPUs, and which, of the runs that finished or diverged."""
    on_gpu = [
        row
        for row in rows
        if row["status"] in ("finished", "diverged")
        and "cuda" in record.provenance(row)["versions"]
    ]
    return {
        "gpu_hours": sum(row["seconds"] for row in on_gpu) / 3600 if on_gpu else None,
        "devices": sorted({row["device"] for row in on_gpu}),
    }


def _command(study: str, runs: Iterable[str]) -> str:
    paths = " ".join(str(record_file(study, run)) for run in runs)
    return f"snakemake --cores all {paths}"


def write(params: Params, plan: Plan) -> None:
    """Write the comparison from the study's collected records, as `files.COMPARISON_FORMATS`."""
    runs = record.read_collected(plan.study)
    long = compare(params, plan, runs)
    rows = tables.records(plan, runs)
    distinct = set(long["runs"].explode().dropna()) & rows.keys()
    verdicts = Counter(long["verdict"])
    values = {
        "study": plan.study,
        "margin": MARGIN,
        "verdicts": {name: verdicts[name] for name in VERDICTS},
        "cost": _cost(rows[run] for run in sorted(distinct)),
        "tables": {
            number: [entry(row) for row in part.to_dict("records")]
            for number, part in long.groupby("published_table")
        },
    }
    file = partial(comparison_file, plan.study)
    output.write_long(long, SCHEMA, file)
    output.write_text("comparison.md.j2", values, file("md"))


def entry(row: dict[Any, Any]) -> dict[str, str]:
    """A row as text, by the heading of each column."""
    terms = PUBLISHED_VARIANTS.get(row["variant"], "").split()  # cl=on fp=on aux=off
    on = [term.removesuffix("=on").upper() for term in terms if term.endswith("=on")]
    ends = row["faa_student_low"], row["faa_student_high"]
    return {
        "Cell": METHODS[row["method"]].title + (f", {' + '.join(on)}" if on else ""),
        "Benchmark": f"{row['benchmark']} from {row['source']}",
        "Protocol": tables.PROTOCOL_TITLES[row["protocol"]],
        "Buffer": "—" if pd.isna(row["buffer"]) else str(row["buffer"]),
        "Paper": _number(row["published_faa"]) + _forgetting(row["published_ff"]),
        "Ours": _number(row["faa_mean"]) + _forgetting(row["ff_mean"]),
        "Interval": "—" if pd.isna(ends[0]) else f"{ends[0]:.2f} to {ends[1]:.2f}",
        "n": f"{row['n']}/{row['n_planned']}",
        "Difference": _number(row["faa_difference"], "+"),
        "Verdict": row["verdict"],
        "GPU hours": _number(row["gpu_hours"]),
        "Command": "—" if pd.isna(row["command"]) else row["command"],
    }


def _number(value: float | None, sign: str = "") -> str:
    return "—" if pd.isna(value) else f"{value:{sign}.2f}"


def _forgetting(value: float | None) -> str:
    return "" if pd.isna(value) else f" ({value:.2f})"
