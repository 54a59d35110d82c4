"""Tables in the shape of the paper's Tables 1-3, from the runs' records.

`cells` gives the long form, one row per cell; `method_rows` the wide form as text, from which the
Markdown, LaTeX and HTML templates are filled. A planned run that is missing, diverged, or made
with other parameters than the plan's is a hole: it is counted, and never averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from twf.errors import UserError
from twf.files import table_file
from twf.learning.evaluation import metrics
from twf.results import output, record, statistics
from twf.results.published import PUBLISHED_VARIANTS, CellKey, Published, key_of, published
from twf.study import Cell, Plan, Table
from twf.study.methods import METHODS
from twf.study.params import Protocol
from twf.study.types import Fidelity

PROTOCOL_TITLES: dict[Protocol, str] = {"class-il": "Class-IL", "task-il": "Task-IL"}

SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("benchmark", pa.string()),
        ("source", pa.string()),
        ("method", pa.string()),
        ("variant", pa.string()),  # of the experiment; null where it has none
        ("buffer", pa.int64()),  # null without rehearsal
        ("protocol", pa.string()),
        ("n", pa.int64()),  # finished runs: those that the means are over
        ("n_planned", pa.int64()),
        ("n_diverged", pa.int64()),
        # All in per cent; null where there is none: no run, one run's spread, Joint's forgetting.
        ("faa_mean", pa.float64()),
        ("faa_std", pa.float64()),
        ("faa_low", pa.float64()),  # by statistics.bootstrap_interval
        ("faa_high", pa.float64()),
        ("faa_interquartile_mean", pa.float64()),
        ("ff_mean", pa.float64()),  # by metrics.forgetting
        ("ff_std", pa.float64()),
        ("ff_low", pa.float64()),
        ("ff_high", pa.float64()),
        ("ff_paper_mean", pa.float64()),  # by metrics.forgetting_paper
        ("ff_paper_std", pa.float64()),
        ("learning_accuracy_mean", pa.float64()),
        ("average_incremental_accuracy_mean", pa.float64()),
        ("backward_transfer_mean", pa.float64()),
        ("forward_transfer_mean", pa.float64()),
        ("published_faa", pa.float64()),
        ("published_ff", pa.float64()),
        ("runs", pa.list_(pa.string())),  # the finished ones, by seed
    ]
)

FORGETTING: dict[Fidelity, str] = {
    "published": (
        "FF is the best accuracy on each task but the last, after any phase from its own on, the "
        "last phase included, minus its final accuracy, averaged over these tasks (as the "
        "published code computes it; the paper's formula leaves the last phase out)."
    ),
    "paper": (
        "FF is the best accuracy on each task but the last, after any phase from its own on but "
        "the last, minus its final accuracy, averaged over these tasks (the paper's formula; the "
        "published code includes the last phase)."
    ),
}
FORGETTING_COLUMN: dict[Fidelity, str] = {"published": "ff_mean", "paper": "ff_paper_mean"}


def records(plan: Plan, runs: pa.Table) -> dict[str, dict[str, Any]]:
    """The records of the planned runs by identifier; those not in `runs` are absent.

    A record made with other parameters than the plan's has its status changed to `stale`.
    """
    found = {}
    for row in runs.filter(pc.field("run").isin(list(plan.runs))).to_pylist():
        planned = plan.runs[row["run"]]
        stale = row["status"] != "unreadable" and row["digest"] != planned.digest
        found[planned.id] = row | {"status": "stale"} if stale else row
    return found


def accuracy(row: dict[str, Any], protocol: Protocol) -> list[list[float]]:
    """A record's accuracy matrix under a protocol: (phases, tasks), per cent."""
    matrix: list[list[float]] = row[f"accuracy_{protocol.replace('-', '_')}"]
    return matrix


def cells(plan: Plan, table_name: str, runs: pa.Table) -> pd.DataFrame:
    """The long form of a table: the columns of `SCHEMA`, one row per cell, integers as Int64.

    Raises `UserError` where the plan has no such table, or the published numbers are missing.
    """
    table = _named(plan, table_name)
    needed = pa.array({run for cell in table.cells for run in cell.runs.values()}, pa.string())
    rows = records(plan, runs.filter(pc.field("run").isin(needed)))
    numbers = {cell.key: cell for cell in published()}
    long = [
        _measured(table, cell, rows) | _published(plan, table, cell, numbers)
        for cell in table.cells
    ]
    return output.to_frame(long, SCHEMA)


def _named(plan: Plan, table_name: str) -> Table:
    if table_name not in plan.tables:
        known = ", ".join(plan.tables)
        raise UserError(f"no table {table_name!r} in study {plan.study}; there is {known}")
    return plan.tables[table_name]


def _measured(table: Table, cell: Cell, rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a cell's runs give: a row of `SCHEMA` without the published columns."""
    found = [rows[run] for run in cell.runs.values() if run in rows]
    finished = [row for row in found if row["status"] == "finished"]
    matrices = [accuracy(row, cell.protocol) for row in finished]
    initial = f"initial_{cell.protocol.replace('-', '_')}"

    def each(metric: Callable[[metrics.Matrix], float | None]) -> list[float]:
        return [value for matrix in matrices if (value := metric(matrix)) is not None]

    faa, ff = each(metrics.final_average_accuracy), each(metrics.forgetting)
    ff_paper = each(metrics.forgetting_paper)
    forward = [
        value
        for row, matrix in zip(finished, matrices, strict=True)
        if (value := metrics.forward_transfer(matrix, row[initial])) is not None
    ]
    return {
        "table": table.name,
        "benchmark": table.benchmark,
        "source": table.source,
        "method": cell.method,
        "variant": cell.variant,
        "buffer": cell.buffer,
        "protocol": cell.protocol,
        "n": len(finished),
        "n_planned": len(cell.runs),
        "n_diverged": sum(row["status"] == "diverged" for row in found),
        "faa_mean": statistics.mean(faa),
        "faa_std": statistics.standard_deviation(faa),
        **output.ends("faa", statistics.bootstrap_interval(faa)),
        "faa_interquartile_mean": statistics.interquartile_mean(faa),
        "ff_mean": statistics.mean(ff),
        "ff_std": statistics.standard_deviation(ff),
        **output.ends("ff", statistics.bootstrap_interval(ff)),
        "ff_paper_mean": statistics.mean(ff_paper),
        "ff_paper_std": statistics.standard_deviation(ff_paper),
        "learning_accuracy_mean": statistics.mean(each(metrics.learning_accuracy)),
        "average_incremental_accuracy_mean": statistics.mean(
            each(metrics.average_incremental_accuracy)
        ),
        "backward_transfer_mean": statistics.mean(each(metrics.backward_transfer)),
        "forward_transfer_mean": statistics.mean(forward),
        "runs": [row["run"] for row in finished],
    }


def _published(
    plan: Plan, table: Table, cell: Cell, numbers: dict[CellKey, Published]
) -> dict[str, float | None]:
    """The paper's numbers for a cell: Table 4's for its variants, and Tables 1-3's for others.

    The paper has none without pretraining.
    """
    key = key_of(table, cell)
    if key.variant not in PUBLISHED_VARIANTS:
        key = key._replace(variant=None)
    found = numbers.get(key)
    if found is None or not all(plan.runs[run].pretrained for run in cell.runs.values()):
        return {}
    return {"published_faa": found.faa, "published_ff": found.ff}


def _integer(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


@dataclass(frozen=True)
class Entry:
    """A cell as text; `span` is the number of columns it stands for."""

    accuracy: str  # '71.20 ± 1.30', or a dash
    forgetting: str  # '(12.30)', or nothing
    hole: str  # 'n=2/3, 1 diverged', or nothing
    published: str  # '83.65 (11.59)', or nothing
    best: bool
    span: int
    name: str  # of the cell, by `cell_name`; nothing where none was planned


@dataclass(frozen=True)
class MethodRow:
    """A row of the wide form: Class-IL's entries, then Task-IL's."""

    title: str
    entries: list[Entry]


def method_rows(table: Table, long: pd.DataFrame, rehearsal: bool) -> list[MethodRow]:
    """The wide form's rows with or without rehearsal, in the order of the plan.

    An entry of a method without rehearsal spans the columns of all buffers; one that was not
    planned is blank.
    """
    cells = {
        (row["method"], _text(row["variant"]), row["protocol"], _integer(row["buffer"])): row
        for row in long.to_dict("records")
    }
    rows = {
        key: title for key, title in table.rows.items() if METHODS[key[0]].rehearsal == rehearsal
    }
    buffers = table.buffers if rehearsal else [None]
    places = [(protocol, buffer) for protocol in table.protocols for buffer in buffers]
    best = {}
    for place in places if rehearsal else []:
        means = [cells[*key, *place]["faa_mean"] for key in rows if (*key, *place) in cells]
        best[place] = pd.Series(means).max()
    span = 1 if rehearsal else len(columns(table))
    return [
        MethodRow(title, [_entry(table, cells.get((*key, *p)), best.get(p), span) for p in places])
        for key, title in rows.items()
    ]


def _text(value: Any) -> str | None:
    return None if pd.isna(value) else str(value)


def columns(table: Table) -> list[str]:
    """The headings of the columns under each protocol: the buffer sizes."""
    return ["none" if buffer is None else str(buffer) for buffer in table.buffers] or ["—"]


def _entry(table: Table, row: dict[Any, Any] | None, best: float | None, span: int) -> Entry:
    if row is None:
        return Entry("", "", "", "", best=False, span=span, name="")
    shown = f"{row['faa_mean']:.2f}" if row["n"] else "—"
    is_best = best is not None and shown == f"{best:.2f}"  # all that look the same
    if row["n"] > 1:
        shown += f" ± {row['faa_std']:.2f}"
    ff = row[FORGETTING_COLUMN[table.forgetting]]
    forgetting = "" if pd.isna(ff) else f"({ff:.2f})"
    hole = ""
    if row["n"] < row["n_planned"] and row["n"] + row["n_diverged"]:
        hole = f"n={row['n']}/{row['n_planned']}"
    if row["n_diverged"]:
        hole += f", {row['n_diverged']} diverged"
    published = "" if pd.isna(row["published_faa"]) else f"{row['published_faa']:.2f}"
    published += "" if pd.isna(row["published_ff"]) else f" ({row['published_ff']:.2f})"
    name = cell_name(row["method"], _text(row["variant"]), _integer(row["buffer"]), row["protocol"])
    return Entry(shown, forgetting, hole, published, is_best, span, name)


def cell_name(method: str, variant: str | None, buffer: int | None, protocol: Protocol) -> str:
    """What tells a cell from the others of its table, in a word."""
    parts = (method, variant, None if buffer is None else str(buffer), protocol)
    return ".".join(part for part in parts if part is not None)


def caption(table: Table, long: pd.DataFrame) -> str:
    """What the numbers of a table are, in plain text; `FORGETTING` adds what FF is."""
    seeds = max(len(cell.runs) for cell in table.cells)
    spread = f" ± sample standard deviation over {seeds} seeds" if seeds > 1 else ""
    parts = [
        f"Pretrained on {table.source}.",
        f"Final average accuracy{spread}, and final forgetting (FF) in parentheses, in per cent"
        + ("." if spread else " (one seed: no spread, no interval)."),
    ]
    if table.buffers:
        parts.append("Bold: the highest accuracy among the methods with a buffer.")
    if (long["n"] < long["n_planned"]).any():
        parts.append("n=a/b: only a of b planned runs finished; —: none did.")
    return " ".join(parts)


def write(plan: Plan, table_name: str) -> None:
    """Write a table of the study from its runs' records, in each of `files.TABLE_FORMATS`.

    Parquet and CSV have the long form, Markdown and LaTeX (with booktabs) the wide one.
    """
    table = _named(plan, table_name)
    long = cells(plan, table_name, record.read_collected(plan.study))
    values = {
        "name": table_name,
        "caption": f"{table.title}. {caption(table, long)} {FORGETTING[table.forgetting]}",
        "protocols": [PROTOCOL_TITLES[protocol] for protocol in table.protocols],
        "columns": columns(table),
        "groups": [method_rows(table, long, rehearsal) for rehearsal in (False, True)],
    }
    file = partial(table_file, plan.study, table_name)
    output.write_long(long, SCHEMA, file)
    output.write_text("table.md.j2", values, file("md"))
    output.write_text("table.tex.j2", values, file("tex"))
