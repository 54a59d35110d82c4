"""Tables in the shape of the paper's Tables 1-3, from the runs' records.

`cells` gives the long form, one row per cell; `method_rows` the wide form as text, from which the
Markdown, LaTeX and HTML templates are filled. Means are over finished runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from twf.files import table_file
from twf.learning.evaluation import metrics
from twf.results import output, search, statistics
from twf.results.output import PROTOCOL_TITLES, Row, number
from twf.results.published import key_of, printed_for
from twf.results.runs import Runs
from twf.study import Cell, SearchCell, Table
from twf.study.methods import METHODS
from twf.study.params import Protocol
from twf.study.types import Fidelity

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
        ("precisions", pa.list_(pa.string())),  # of the finished ones: several where they differ
        ("untuned", pa.string()),  # what the paper does not print and no search has chosen
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

_FORGETTING = (
    "FF is the best accuracy on each task but the last, after any phase from its own on{}, minus "
    "its final accuracy, averaged over these tasks ({})."
)
FORGETTING: dict[Fidelity, str] = {
    "published": _FORGETTING.format(
        ", the last phase included",
        "as the published code computes it; the paper's formula leaves the last phase out",
    ),
    "paper": _FORGETTING.format(
        " but the last", "the paper's formula; the published code includes the last phase"
    ),
}
FORGETTING_COLUMN: dict[Fidelity, str] = {"published": "ff_mean", "paper": "ff_paper_mean"}


def cells(runs: Runs, table: Table) -> list[Row]:
    """The long form: a row of `SCHEMA` for each of `table.cells`, in their order.

    Raises `UserError` where the published numbers are missing.
    """
    untuned = search.untuned(runs)
    long = []
    for cell, printed in zip(table.cells, printed_for(runs.plan, table), strict=True):
        key = key_of(table, cell)
        row = {"table": table.name, **key._asdict(), **measured(runs, cell.runs, cell.protocol)}
        row["source"] = table.source
        row["untuned"] = untuned.get(key)
        if printed:
            row |= {"published_faa": printed.faa, "published_ff": printed.ff}
        long.append(output.complete(row, SCHEMA))
    return long


def measured(runs: Runs, of_cell: Mapping[int, str], protocol: Protocol) -> Row:
    """What the runs of a cell give: the columns on them, here and in `paper.comparison`."""
    finished = list(runs.finished(of_cell).values())
    names = [outcome.run.id for outcome in finished]
    matrices = [outcome.accuracy(protocol) for outcome in finished]
    initial = [outcome.initial(protocol) for outcome in finished]

    def each(metric: Callable[..., float | None], *more: Sequence[Any]) -> list[float]:
        return [value for value in map(metric, matrices, *more) if value is not None]

    faa = each(metrics.final_average_accuracy)
    return {
        "n": len(finished),
        "n_planned": len(of_cell),
        "n_diverged": runs.counts(of_cell.values())["diverged"],
        "precisions": runs.precisions(names),
        **statistics.described("faa", faa),
        "faa_interquartile_mean": statistics.interquartile_mean(faa),
        **statistics.described("ff", each(metrics.forgetting)),
        **statistics.described("ff_paper", each(metrics.forgetting_paper)),
        "learning_accuracy_mean": statistics.mean(each(metrics.learning_accuracy)),
        "average_incremental_accuracy_mean": statistics.mean(
            each(metrics.average_incremental_accuracy)
        ),
        "backward_transfer_mean": statistics.mean(each(metrics.backward_transfer)),
        "forward_transfer_mean": statistics.mean(each(metrics.forward_transfer, initial)),
        "runs": names,
    }


@dataclass(frozen=True)
class Entry:
    """A cell as text; all of it is empty where none was planned."""

    span: int  # the number of columns it stands for
    accuracy: str = ""  # '71.20 ± 1.30', or a dash
    forgetting: str = ""  # '(12.30)', or nothing
    remark: str = ""  # 'n=2/3, 1 diverged, bf16/fp32, untuned', or nothing
    published: str = ""  # '83.65 (11.59)', or nothing
    best: bool = False
    name: str = ""  # of the cell, by `cell_name`


def method_rows(
    table: Table, long: Sequence[Row], rehearsal: bool
) -> list[tuple[str, list[Entry]]]:
    """The wide form's rows with or without rehearsal, in the order of the plan.

    Each a title, and Class-IL's entries, then Task-IL's. An entry of a method without rehearsal
    spans the columns of all buffers; one that was not planned is blank.
    """
    found = {
        (cell.method, cell.variant, cell.protocol, cell.buffer): (cell, row)
        for cell, row in zip(table.cells, long, strict=True)
    }
    rows = {
        key: title for key, title in table.rows.items() if METHODS[key[0]].rehearsal == rehearsal
    }
    buffers = table.buffers if rehearsal else [None]
    places = [(protocol, buffer) for protocol in table.protocols for buffer in buffers]
    best: dict[tuple[Protocol, int | None], str] = {}
    for place in places if rehearsal else []:
        there = [found[*key, *place][1] for key in rows if (*key, *place) in found]
        means = [row["faa_mean"] for row in there if _finished(row)]
        best[place] = number(max(means, default=None))
    span = 1 if rehearsal else len(columns(table))

    def entry(key: tuple[str, str | None], place: tuple[Protocol, int | None]) -> Entry:
        if (*key, *place) not in found:
            return Entry(span)
        return _entry(table, *found[*key, *place], best.get(place), span)

    return [(title, [entry(key, place) for place in places]) for key, title in rows.items()]


def columns(table: Table) -> list[str]:
    """The headings of the columns under each protocol: the buffer sizes."""
    return ["none" if buffer is None else str(buffer) for buffer in table.buffers] or ["—"]


def _entry(table: Table, cell: Cell, row: Row, best: str | None, span: int) -> Entry:
    shown = number(row["faa_mean"])
    is_best = shown == best and _finished(row)  # all that look the same
    if row["n"] > 1:
        shown += f" ± {row['faa_std']:.2f}"
    remarks = []
    if row["n"] < row["n_planned"] and row["n"] + row["n_diverged"]:
        remarks.append(f"n={row['n']}/{row['n_planned']}")
    if row["n_diverged"]:
        remarks.append(f"{row['n_diverged']} diverged")
    if len(row["precisions"]) > 1:
        remarks.append("/".join(row["precisions"]))
    if row["untuned"]:
        remarks.append("untuned")
    printed = "" if row["published_faa"] is None else number(row["published_faa"])
    return Entry(
        span,
        accuracy=shown,
        forgetting=in_parentheses(row[FORGETTING_COLUMN[table.forgetting]]),
        remark=", ".join(remarks),
        published=f"{printed} {in_parentheses(row['published_ff'])}".rstrip(),
        best=is_best,
        name=cell_name(cell),
    )


def _finished(row: Row) -> bool:
    """Whether all runs of a cell have finished."""
    return bool(row["n"] == row["n_planned"])


def in_parentheses(value: float | None) -> str:
    """Forgetting as it stands behind an accuracy; nothing where there is none."""
    return "" if value is None else f"({value:.2f})"


def cell_name(cell: Cell | SearchCell) -> str:
    """What tells a cell from the others of its table, in a word."""
    variant = cell.variant if isinstance(cell, Cell) else None
    parts = (cell.method, variant, cell.buffer, cell.protocol)
    return ".".join(str(part) for part in parts if part is not None)


def caption(table: Table) -> str:
    """What the numbers of a table are, in plain text."""
    seeds = max(len(cell.runs) for cell in table.cells)
    spread = f" ± sample standard deviation over {seeds} seeds" if seeds > 1 else ""
    return (
        f"Final average accuracy{spread}, and final forgetting (FF) in parentheses, in per cent"
        + ("." if spread else " (one seed: no spread, no interval).")
    )


def remarks(table: Table, long: Sequence[Row]) -> str:
    """What else is to be said below a table; `FORGETTING` adds what FF is."""
    parts = [f"Pretrained on {table.source}."]
    if table.buffers:
        parts.append(
            "Bold: the highest accuracy among the methods with a buffer, of cells whose runs have "
            "all finished."
        )
    if any(row["n"] < row["n_planned"] for row in long):
        parts.append("n=a/b: only a of b planned runs finished; —: none did.")
    if any(len(row["precisions"]) > 1 for row in long):
        parts.append("bf16/fp32: its runs have either precision.")
    if untuned := sorted({row["untuned"] for row in long if row["untuned"]}):
        parts.append(
            f"Untuned: the paper does not print {', '.join(untuned)}, and no search has chosen it."
        )
    return " ".join(parts)


def wide(table: Table, long: Sequence[Row]) -> dict[str, Any]:
    """The wide form for a template."""
    return {
        "name": table.name,
        "caption": caption(table),
        "remarks": remarks(table, long),
        "protocols": [PROTOCOL_TITLES[protocol] for protocol in table.protocols],
        "columns": columns(table),
        "groups": [method_rows(table, long, rehearsal) for rehearsal in (False, True)],
    }


def write(runs: Runs, table: Table) -> None:
    """Write a table of the study from its runs' records, in each of `files.TABLE_FORMATS`.

    Parquet and CSV have the long form, Markdown and LaTeX (with booktabs) the wide one.
    """
    long = cells(runs, table)
    values = wide(table, long)
    noted = f" {runs.plan.note}" if runs.plan.note else ""
    values["caption"] = f"{table.title}. {values['caption']}{noted}"
    values["remarks"] += f" {FORGETTING[table.forgetting]}"
    file = partial(table_file, runs.plan.study, table.name)
    output.write_long(long, SCHEMA, file)
    output.write_text("table.md.j2", values, file("md"))
    output.write_text("table.tex.j2", values, file("tex"))
