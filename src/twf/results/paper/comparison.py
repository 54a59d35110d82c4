"""The paper's printed cells beside a study's: difference, verdict, command and cost of each.

The paper prints no spread and no number of seeds, so the verdict rests on our seeds alone. It
compares Student's 95 % interval of our mean FAA with the paper's value and a margin around it
(`verdict`).

The margin is `MARGIN`, one point to each side. It has to be wide enough for what the paper leaves
out (its value may be one run's), and narrow enough to mean something: its claims rest on gains of
2.8 to 4.8 points, so that two cells, each equivalent to the paper's, keep such an order. Student's
interval and not the bootstrap's: that is too short for few seeds, and would decide too often. Some
5 % of intervals miss their true mean: of 144 verdicts, expect a few to be wrong.

The probability that our true mean lies within the margin (`statistics.probability_within`) says
something with few seeds, too: the verdict is `equivalent` at 97.5 % or more, and not below 95 %.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial

import pyarrow as pa

from twf.files import comparison_file, record_file
from twf.results import output, statistics, tables
from twf.results.output import Markdown, Row, Texts, number
from twf.results.paper import order
from twf.results.published import PUBLISHED_VARIANTS, CellKey, planned, published
from twf.results.runs import Outcome, Runs
from twf.results.statistics import Interval
from twf.study import expand
from twf.study.methods import METHODS
from twf.study.params import Params

MARGIN = 1.0  # points of FAA to each side of the paper's value

VERDICTS = ("equivalent", "higher", "lower", "undecided", "reduced", "not run")

SCHEMA = pa.schema(
    [
        ("published_table", pa.int64()),  # of the paper, from 1
        *map(tables.SCHEMA.field, CellKey._fields),  # the variant is of Table 4; null elsewhere
        # All in per cent; null where there is none.
        *map(tables.SCHEMA.field, ("published_faa", "published_ff")),
        *map(tables.SCHEMA.field, ("n", "n_planned", "n_diverged")),
        *map(tables.SCHEMA.field, ("faa_mean", "faa_std", "faa_low", "faa_high")),
        ("faa_student_low", pa.float64()),  # by statistics.student_interval: decides the verdict
        ("faa_student_high", pa.float64()),
        *map(tables.SCHEMA.field, ("ff_mean", "ff_low", "ff_high")),
        ("faa_difference", pa.float64()),  # ours minus the paper's
        ("ff_difference", pa.float64()),
        # That our true mean lies within MARGIN of the paper's number; null with fewer than 2 runs
        # or at reduced scale
        ("probability_within", pa.float64()),
        ("verdict", pa.string()),  # one of VERDICTS, on FAA
        ("gpu_hours", pa.float64()),  # of its runs on CUDA devices; null without such a run
        ("devices", pa.list_(pa.string())),  # these devices
        ("study", pa.string()),  # whose runs make the cell; null where no study has it
        ("command", pa.string()),  # makes these runs
        ("runs", pa.list_(pa.string())),  # all of them, by seed
    ]
)


def verdict(
    published_faa: float,
    n: int,
    n_diverged: int,
    interval: Interval | None,
    reduced: bool = False,
) -> str:
    """One of `VERDICTS` for a cell's mean FAA."""
    if n + n_diverged == 0:
        return "not run"
    if reduced:  # a difference is to be expected
        return "reduced"
    if interval is None:  # one seed, or all runs diverged
        return "undecided"
    low, high = (end - published_faa for end in interval)
    if max(abs(low), abs(high)) <= MARGIN:
        return "equivalent"
    if low > MARGIN:
        return "higher"
    return "lower" if high < -MARGIN else "undecided"


def compare(params: Params, runs: Runs) -> list[Row]:
    """A row of `SCHEMA` for each published cell, in the order of the paper's tables.

    A cell that the study does not have is not run; its command is that of the first other study of
    params.yaml that has it with the paper's hyperparameters. A run that serves several cells counts
    in the cost of each.
    """
    own = runs.plan.study
    others = [
        name
        for name, study in params.studies.items()
        if name != own and study.best_hyperparameters is None and not study.scale
    ]
    reduced = {table.benchmark for table in runs.plan.tables.values() if table.reduced}
    studies = [(own, planned(runs.plan)), *((o, planned(expand(params, o))) for o in others)]
    long = []
    for cell in published():
        study, of_cell = next(
            ((name, cells[cell.key]) for name, cells in studies if cell.key in cells), (None, {})
        )
        mine = of_cell if study == own else {}
        files = " ".join(str(record_file(study, run)) for run in of_cell.values()) if study else ""
        row = tables.measured(runs, mine, cell.key.protocol)
        row |= cell.key._asdict() | _cost(runs.outcomes[run] for run in mine.values())
        ours = list(runs.faa(mine, cell.key.protocol).values())
        scaled = study == own and cell.key.benchmark in reduced
        interval = statistics.student_interval(ours)
        row |= {
            "published_table": cell.table,
            "published_faa": cell.faa,
            "published_ff": cell.ff,
            "faa_difference": _difference(row["faa_mean"], cell.faa),
            "ff_difference": _difference(row["ff_mean"], cell.ff),
            "probability_within": None
            if scaled
            else statistics.probability_within(ours, cell.faa - MARGIN, cell.faa + MARGIN),
            "verdict": verdict(cell.faa, row["n"], row["n_diverged"], interval, scaled),
            "n_planned": len(of_cell),
            "study": study,
            "runs": list(of_cell.values()),
            "command": f"snakemake --cores all {files}" if study else None,
        }
        long.append(output.complete(row, SCHEMA))
    return long


def _difference(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs


def _cost(outcomes: Iterable[Outcome]) -> Row:
    """Hours on GPUs, and which, of the runs that finished or diverged."""
    on_gpu = [outcome.row for outcome in outcomes if outcome.ended and outcome.on_gpu]
    return {
        "gpu_hours": sum(row["seconds"] for row in on_gpu) / 3600 if on_gpu else None,
        "devices": sorted({row["device"] for row in on_gpu}),
    }


def write(params: Params, runs: Runs) -> None:
    """Write the comparison from the study's collected records, as `files.COMPARISON_FORMATS`."""
    study, long = runs.plan.study, compare(params, runs)
    distinct = {run for row in long for run in row["runs"] if row["study"] == study}
    counts = Counter(row["verdict"] for row in long)
    values = {
        "study": study,
        "margin": MARGIN,
        "verdicts": {name: counts[name] for name in VERDICTS},
        "cost": _cost(runs.outcomes[run] for run in sorted(distinct)),
        "order": [order.entry(row) for row in order.compare(long)],
        "tables": {
            table: [
                entry(row) | {"Command": Markdown(f"`{row['command']}`" if row["command"] else "—")}
                for row in rows
            ]
            for table, rows in by_table(long).items()
        },
    }
    file = partial(comparison_file, study)
    output.write_long(long, SCHEMA, file)
    output.write_text("comparison.md.j2", values, file("md"))


def by_table(long: Iterable[Row]) -> dict[int, list[Row]]:
    """The rows of each of the paper's tables, by its number."""
    found = defaultdict(list)
    for row in long:
        found[row["published_table"]].append(row)
    return dict(sorted(found.items()))


def entry(row: Row) -> Texts:
    """A row as text, by the heading of each column."""
    terms = PUBLISHED_VARIANTS.get(row["variant"], "").split()  # cl=on fp=on aux=off
    on = [term.removesuffix("=on").upper() for term in terms if term.endswith("=on")]
    beside = {name: tables.in_parentheses(row[name]) for name in ("published_ff", "ff_mean")}
    return {
        "Cell": METHODS[row["method"]].title + (f", {' + '.join(on)}" if on else ""),
        "Benchmark": f"{row['benchmark']} from {row['source']}",
        "Protocol": output.PROTOCOL_TITLES[row["protocol"]],
        "Buffer": "—" if row["buffer"] is None else str(row["buffer"]),
        "Paper": f"{number(row['published_faa'])} {beside['published_ff']}".rstrip(),
        "Ours": f"{number(row['faa_mean'])} {beside['ff_mean']}".rstrip(),
        "Interval": output.interval(row["faa_student_low"], row["faa_student_high"]),
        "n": f"{row['n']}/{row['n_planned']}",
        "Difference": number(row["faa_difference"], "+"),
        f"Probability within {MARGIN:g}": number(row["probability_within"]),
        "Verdict": row["verdict"],
        "GPU hours": number(row["gpu_hours"]),
        "Command": row["command"] or "—",
    }
