"""Gains: differences between cells of a study's tables, and the paper's own.

In a table of methods, TwF minus each other one, or each other one minus the experiment's baseline;
in a table of variants, each variant minus its method as params.yaml has it. At reduced scale,
accuracies are not the paper's: gains are what can be held beside it.

Their intervals are those of `contrasts`; they are not corrected for the number of gains.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from twf.files import gains_file
from twf.results import cells, contrasts, show
from twf.results.frame import Results, key_of
from twf.results.show import TextRow, number
from twf.study import Cell, Table
from twf.study.methods import METHODS

REFERENCE = "twf"  # whose gains over other methods are the paper's subject

_PLACE = ["table", "benchmark", "source", "method", "variant", "buffer", "protocol"]

SCHEMA = pa.schema(
    [
        *map(cells.SCHEMA.field, _PLACE),  # of the cell that gains; without buffer, the other's
        ("over_method", pa.string()),  # of the other one
        ("over_variant", pa.string()),
        ("n", pa.int64()),  # seeds that both have finished
        ("n_planned", pa.int64()),
        ("precisions", pa.list_(pa.string())),  # of their runs: several where they differ
        # In percentage points of final average accuracy; null where there are too few seeds
        ("gain_mean", pa.float64()),
        ("gain_error", pa.float64()),  # the standard error
        ("gain_freedom", pa.float64()),  # its degrees of freedom
        ("gain_low", pa.float64()),  # the ends of the 95 % interval
        ("gain_high", pa.float64()),
        ("printed_gain", pa.float64()),  # null where the paper does not print both
    ]
)
COMPARED = show.Compared(
    gains_file,
    SCHEMA,
    "Gains are differences of final average accuracy in percentage points: means over the seeds "
    "that both have finished (n=a/b: a of b), with a 95 % interval, Welch's between methods, with "
    "its degrees of freedom (df), and Student's by seed between variants of a method; †: of runs "
    "that differ in precision; paper: the same difference of its numbers.",
)


def pairs(table: Table) -> list[tuple[Cell, Cell]]:
    """Each cell of a table that gains over another, and that other one."""
    if not table.variants:
        one = table.baseline or REFERENCE
        return [
            (cell, other)
            for other in table.cells
            for cell in table.cells
            if (other if table.baseline else cell).method == one
            and cell.method != other.method
            and cell.protocol == other.protocol
            and (cell.buffer == other.buffer or None in (cell.buffer, other.buffer))
        ]
    bases = {
        (cell.method, cell.buffer, cell.protocol): cell
        for cell in reversed(table.cells)  # the first of several that change nothing
        if cell.unchanged
    }
    both = ((cell, bases.get((cell.method, cell.buffer, cell.protocol))) for cell in table.cells)
    return [(cell, base) for cell, base in both if base is not None and base is not cell]


def of_tables(results: Results, written: pd.DataFrame) -> pd.DataFrame:
    """A row of `SCHEMA` for each of the tables' `pairs`, whose cells' numbers are `written`."""
    numbers = {(row["table"], row["cell"]): row for row in show.rows(written)}
    members = dict(list(results.members.groupby(["table", "cell"])))
    rows = []
    for table in results.plan.tables.values():
        for cell, other in pairs(table) if table.name in set(written["table"]) else ():
            of, below = numbers[table.name, cell.name], numbers[table.name, other.name]
            ours, theirs = members[table.name, cell.name], members[table.name, other.name]
            one, over = (key_of(table.benchmark, table.paper_source, c) for c in (cell, other))
            values = {one: contrasts.by_seed(ours), over: contrasts.by_seed(theirs)}
            both = pd.concat([ours, theirs])
            used = both["seed"].isin(values[one].keys() & values[over].keys())
            # A variant that is not in Table 4 stands beside its method's own number
            beside = not table.variants or bool(ours["printed_variant"].iloc[0])
            printed = of["printed_faa"] - below["printed_faa"] if beside else float("nan")
            rows.append(
                {name: of[name] for name in [*_PLACE, "cell"]}
                | {"buffer": of["buffer"] or below["buffer"]}
                | {f"over_{name}": below[name] for name in ("cell", "method", "variant")}
                | contrasts.difference(values, one, over).gain
                | {"n_planned": len(cell.runs.keys() & other.runs.keys())}
                | {"precisions": sorted(set(both["precision"][used].dropna()))}
                | {"printed_gain": printed}
            )
    return pd.DataFrame(rows, columns=[*SCHEMA.names, "cell", "over_cell"])


def write(results: Results, written: pd.DataFrame) -> None:
    """Write the gains from a study's collected records and its tables, as they were `written`."""
    plan, frame = results.plan, of_tables(results, written)
    rows = {name: text_rows(of, frame[frame["table"] == name]) for name, of in plan.tables.items()}
    sections = [show.Section(plan.tables[name].title, of) for name, of in rows.items()]
    COMPARED.write(plan, frame, sections)


def text_rows(
    table: Table, gains: pd.DataFrame, markup: type[str] = show.Markdown
) -> list[TextRow]:
    """A table's gains as text, a row for each method or variant; none where none has run.

    `markup` is what a text with a line break, `<br>`, is given as.
    """
    if not gains["n"].any():
        return []
    heading = "Change by" if table.variants else over(table)
    prefix = "" if table.variants or table.baseline else "over_"
    keys = [f"{prefix}method", f"{prefix}variant", "protocol", "buffer"]
    of = {tuple(row[key] for key in keys): row for row in show.rows(gains)}
    columns = {
        (protocol, buffer or 0): show.place(protocol, buffer)
        for protocol in table.protocols
        for buffer in table.buffers or [None]
        if any(name[2:] == (protocol, buffer or 0) for name in of)
    }
    entries = []
    for (method, variant), title in table.rows.items():
        key = method, variant or ""
        if any(name[:2] == key for name in of):
            # What has no buffer stands in each column, as in the table itself
            without = bool(table.variants) and not METHODS[method].rehearsal
            rows = {
                name: of.get((*key, protocol, 0 if without else buffer))
                for (protocol, buffer), name in columns.items()
            }
            entries.append({heading: title} | {name: markup(_text(r)) for name, r in rows.items()})
    return entries


def model(table: Table) -> str:
    """In words, what the intervals of a table's gains are: `contrasts.estimates` decides."""
    if table.variants:
        return "Student's 95 % interval of the differences by seed"
    return "Welch's 95 % interval"


def over(table: Table) -> str:
    """What the gains of a table of methods are, as a heading over the other method's title."""
    if table.baseline:
        return f"Minus {METHODS[table.baseline].title}"
    return f"{METHODS[REFERENCE].title} minus"


def _text(row: Any) -> str:
    """A gain and the paper's: '+1.30 (-0.05 to +2.65; 4 df) n=2/3 †<br>paper +3.28'."""
    if row is None:
        return "—"
    # Of variants, degrees of freedom are one less than seeds
    between = row["method"] != row["over_method"]
    df = f"; {show.freedom(row['gain_freedom'])}" if between else ""
    parts = [show.estimate(row["gain_mean"], row["gain_low"], row["gain_high"], df)]
    if 0 < row["n"] < row["n_planned"]:
        parts.append(f"n={row['n']}/{row['n_planned']}")
    if len(row["precisions"]) > 1:
        parts.append(show.MIXED)
    printed = row["printed_gain"]
    return " ".join(parts) + ("" if pd.isna(printed) else f"<br>paper {number(printed, '+')}")
