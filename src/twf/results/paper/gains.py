"""Gains: differences between cells of a study's tables, paired by seed, and the paper's own.

In a table of methods, TwF minus each other one, or each other one minus the experiment's baseline;
in a table of variants, each variant minus its method as params.yaml has it. At reduced scale,
accuracies are not the paper's: gains are what can be held beside it.

The two runs of a seed may depend on each other, so that what they share cancels out. The interval
is Student's, of the mean of their differences; it is not corrected for the number of gains.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa

from twf.files import gains_file
from twf.results import cells, show, statistics
from twf.results.frame import Results
from twf.results.show import Texts, number
from twf.study import Cell, Table
from twf.study.methods import METHODS

REFERENCE = "twf"  # whose gains over other methods are the paper's subject

_PLACE = ["table", "benchmark", "source", "method", "variant", "buffer", "protocol"]

SCHEMA = pa.schema(
    [
        *map(cells.SCHEMA.field, _PLACE),  # of the cell that gains
        ("over_method", pa.string()),  # of the other one
        ("over_variant", pa.string()),
        ("n", pa.int64()),  # seeds that both have finished
        ("n_planned", pa.int64()),
        ("precisions", pa.list_(pa.string())),  # of their runs: several where they differ
        # In points of per cent of final average accuracy; null where there are too few seeds
        ("gain_mean", pa.float64()),
        ("gain_std", pa.float64()),
        ("gain_low", pa.float64()),
        ("gain_high", pa.float64()),
        ("printed_gain", pa.float64()),  # null where the paper does not print both
    ]
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
            and other.buffer in (None, cell.buffer)
        ]
    bases = {
        (cell.method, cell.buffer, cell.protocol): cell
        for cell in reversed(table.cells)  # the first of several that change nothing
        if cell.unchanged
    }
    found = ((cell, bases.get((cell.method, cell.buffer, cell.protocol))) for cell in table.cells)
    return [(cell, base) for cell, base in found if base is not None and base is not cell]


def by_seed(results: Results) -> pd.DataFrame:
    """The gain of each seed that both cells of a pair have planned, null where one is unfinished.

    A row for each with the pair's `table`, `cell` and `over_cell`, `seed`, `gain` in points, and
    the `precision` of each run.
    """
    members = results.members[["table", "cell", "seed", "faa", "precision"]]
    found = pd.DataFrame(
        [
            (table.name, cell.name, other.name)
            for table in results.plan.tables.values()
            for cell, other in pairs(table)
        ],
        columns=["table", "cell", "over_cell"],
    ).drop_duplicates()
    both = found.merge(members, on=["table", "cell"], how="left").merge(
        members.rename(columns={"cell": "over_cell"}),
        on=["table", "over_cell", "seed"],
        suffixes=("", "_over"),
    )
    return both.assign(gain=both["faa"] - both["faa_over"])


def of_tables(results: Results, written: pd.DataFrame) -> pd.DataFrame:
    """A row of `SCHEMA` for each of the tables' `pairs`, whose cells' numbers are `written`."""
    pair = ["table", "cell", "over_cell"]
    seeds = by_seed(results)
    paired = seeds[seeds["gain"].notna()]
    groups = seeds.groupby(pair, sort=False)
    frame = statistics.summary(groups["gain"], "gain")
    frame["n"], frame["n_planned"] = groups["gain"].count(), groups.size()
    both = pd.concat([paired, paired.assign(precision=paired["precision_over"])])
    precisions = both.groupby(pair)["precision"].agg(lambda of: sorted(set(of.dropna())))
    frame["precisions"] = [precisions.get(key, []) for key in frame.index]
    names = [*_PLACE, "cell", "printed_faa"]
    over = written.rename(columns={"cell": "over_cell"})[["over_cell", *names[:-2], names[-1]]]
    over = over.drop(columns=[n for n in _PLACE if n not in ("table", "method", "variant")])
    frame = frame.reset_index().merge(written[names], on=["table", "cell"])
    frame = frame.merge(over, on=["table", "over_cell"], suffixes=("", "_over"))
    frame = frame.rename(columns={f"{n}_over": f"over_{n}" for n in ("method", "variant")})
    variants = {name for name, table in results.plan.tables.items() if table.variants}
    in_table_4 = {
        (table, cell)
        for table, cell, variant in results.members[
            ["table", "cell", "printed_variant"]
        ].itertuples(index=False)
        if variant
    }
    # A variant that is not in Table 4 stands beside its method's own number
    alone = [
        table not in variants or (table, cell) in in_table_4
        for table, cell in zip(frame["table"], frame["cell"], strict=True)
    ]
    gain = frame["printed_faa"] - frame["printed_faa_over"]
    return frame.assign(printed_gain=gain.where(pd.Series(alone, frame.index, dtype=bool)))


def write(results: Results, written: pd.DataFrame) -> None:
    """Write the gains from a study's collected records and its tables, as they were `written`."""
    plan = results.plan
    frame = of_tables(results, written)
    show.write(frame, SCHEMA, partial(gains_file, plan.study), show.of_records(plan.study))
    sections = [
        (table.title, texts(table, frame[frame["table"] == name]))
        for name, table in plan.tables.items()
    ]
    values = {"study": plan.study, "note": plan.note, "sections": sections}
    show.fill("gains.md.j2", values, gains_file(plan.study, "md"))


def read(study: str) -> pd.DataFrame:
    """The gains as `write` has written them."""
    return show.read(
        gains_file(study, "parquet"), SCHEMA, f"`twf compare {study}`", show.of_records(study)
    )


def texts(table: Table, gains: pd.DataFrame, markup: type[str] = show.Markdown) -> list[Texts]:
    """A table's gains as text, a row for each method or variant; none where none has run.

    `markup` is what a text with a line break, `<br>`, is given as.
    """
    if not gains["n"].any():
        return []
    heading = "Change by" if table.variants else over(table)
    prefix = "" if table.variants or table.baseline else "over_"
    keys = [f"{prefix}method", f"{prefix}variant", "protocol", "buffer"]
    found = {tuple(row[key] for key in keys): row for row in show.rows(gains)}
    columns = {
        (protocol, buffer or 0): show.place(protocol, buffer)
        for protocol in table.protocols
        for buffer in table.buffers or [None]
        if any(name[2:] == (protocol, buffer or 0) for name in found)
    }
    entries = []
    for (method, variant), title in table.rows.items():
        key = method, variant or ""
        if any(name[:2] == key for name in found):
            # What has no buffer stands in each column, as in the table itself
            without = bool(table.variants) and not METHODS[method].rehearsal
            rows = {
                name: found.get((*key, protocol, 0 if without else buffer))
                for (protocol, buffer), name in columns.items()
            }
            entries.append({heading: title} | {name: markup(_text(r)) for name, r in rows.items()})
    return entries


def over(table: Table) -> str:
    """What the gains of a table of methods are, as a heading over the other method's title."""
    if table.baseline:
        return f"Minus {METHODS[table.baseline].title}"
    return f"{METHODS[REFERENCE].title} minus"


def _text(row: Any) -> str:
    """A gain and the paper's: '+1.30 (-0.05 to +2.65) n=2/3 bf16/fp32<br>paper +3.28'."""
    if row is None:
        return "—"
    parts = [number(row["gain_mean"], "+")]
    if row["n"] > 1:
        parts.append(f"({show.interval(row['gain_low'], row['gain_high'], '+')})")
    if 0 < row["n"] < row["n_planned"]:
        parts.append(f"n={row['n']}/{row['n_planned']}")
    if len(row["precisions"]) > 1:
        parts.append("/".join(row["precisions"]))
    printed = row["printed_gain"]
    return " ".join(parts) + ("" if pd.isna(printed) else f"<br>paper {number(printed, '+')}")
