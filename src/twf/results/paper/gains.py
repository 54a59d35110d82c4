"""Gains: differences between cells of a study's tables, paired by seed, and the paper's own.

In a table of methods, TwF minus each other one; in a table of variants, each variant minus its
method as params.yaml has it. At reduced scale, accuracies are not the paper's: gains are what can
be held beside it.

The two runs of a seed may depend on each other, so that what they share cancels out. The interval
is Student's, of the mean of their differences; it is not corrected for the number of gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import pyarrow as pa

from twf.files import gains_file
from twf.results import output, statistics, tables
from twf.results.output import Row, Texts, number
from twf.results.published import printed_for
from twf.results.runs import Runs
from twf.study import Cell, Table
from twf.study.methods import METHODS

REFERENCE = "twf"  # whose gains over other methods are the paper's subject

SCHEMA = pa.schema(
    [
        # Of the cell that gains
        *map(tables.SCHEMA.field, ("table", "benchmark", "source", "method", "variant")),
        *map(tables.SCHEMA.field, ("buffer", "protocol")),
        ("over_method", pa.string()),  # of the other one
        ("over_variant", pa.string()),
        ("n", pa.int64()),  # seeds that both have finished
        ("n_planned", pa.int64()),
        ("precisions", pa.list_(pa.string())),  # of their runs: several where they differ
        # In points of per cent of final average accuracy; null where there are too few seeds
        *((name, pa.float64()) for name in statistics.described("gain", [])),
        ("published_gain", pa.float64()),  # null where the paper does not print both
    ]
)


def pairs(table: Table) -> list[tuple[Cell, Cell]]:
    """Each cell of a table that gains over another, and that other one."""
    if not table.variants:
        return [
            (cell, other)
            for other in table.cells
            for cell in table.cells
            if cell.method == REFERENCE != other.method
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


def by_seed(runs: Runs, cell: Cell, other: Cell) -> dict[int, float]:
    """A cell's final average accuracy minus another's, points, of the seeds both have finished."""
    ours, theirs = (runs.faa(one.runs, one.protocol) for one in (cell, other))
    return {seed: faa - theirs[seed] for seed, faa in ours.items() if seed in theirs}


def of_table(runs: Runs, table: Table) -> list[Row]:
    """A row of `SCHEMA` for each of `pairs`. Raises `UserError` without the published numbers."""
    names = map(tables.cell_name, table.cells)
    printed = dict(zip(names, printed_for(runs.plan, table), strict=True))
    long = []
    for cell, other in pairs(table):
        ours, theirs = (printed[tables.cell_name(one)] for one in (cell, other))
        place = cell.model_dump(include={"method", "variant", "buffer", "protocol"})
        row = place | {
            "table": table.name,
            "benchmark": table.benchmark,
            "source": table.source,
            "over_method": other.method,
            "over_variant": other.variant,
            "n_planned": len(cell.runs.keys() & other.runs.keys()),
        }
        gains = by_seed(runs, cell, other)
        paired = (one.runs[seed] for one in (cell, other) for seed in gains)
        row |= {"n": len(gains), "precisions": runs.precisions(paired)}
        row |= statistics.described("gain", list(gains.values()))
        # A variant that is not in Table 4 stands beside its method's own number
        if ours and theirs and (ours.key.variant or not table.variants):
            row["published_gain"] = ours.faa - theirs.faa
        long.append(output.complete(row, SCHEMA))
    return long


def wide(table: Table, long: Sequence[Row], markup: type[str] = output.Markdown) -> list[Texts]:
    """The gains of a table as text, a row for each method or variant; none where none has run.

    `markup` is what a text with a line break, `<br>`, is given as.
    """
    if not any(row["n"] for row in long):
        return []
    heading, prefix = (
        ("Change by", "") if table.variants else (f"{METHODS[REFERENCE].title} minus", "over_")
    )
    found = {
        (row[f"{prefix}method"], row[f"{prefix}variant"], row["protocol"], row["buffer"]): row
        for row in long
    }
    columns = {
        (protocol, buffer): output.place(protocol, buffer)
        for protocol in table.protocols
        for buffer in table.buffers or [None]
        if any(name[2:] == (protocol, buffer) for name in found)
    }
    entries = []
    for key, title in table.rows.items():
        if any(name[:2] == key for name in found):
            # What has no buffer stands in each column, as in the table itself
            without = bool(table.variants) and not METHODS[key[0]].rehearsal
            texts = {
                name: markup(_text(found.get((*key, protocol, None if without else buffer))))
                for (protocol, buffer), name in columns.items()
            }
            entries.append({heading: title} | texts)
    return entries


def _text(row: Row | None) -> str:
    """A gain and the paper's: '+1.30 (-0.05 to +2.65) n=2/3 bf16/fp32<br>paper +3.28'."""
    if row is None:
        return "—"
    parts = [number(row["gain_mean"], "+")]
    if row["n"] > 1:
        ends = output.interval(row["gain_student_low"], row["gain_student_high"], "+")
        parts.append(f"({ends})")
    if 0 < row["n"] < row["n_planned"]:
        parts.append(f"n={row['n']}/{row['n_planned']}")
    if len(row["precisions"]) > 1:
        parts.append("/".join(row["precisions"]))
    printed = row["published_gain"]
    return " ".join(parts) + ("" if printed is None else f"<br>paper {number(printed, '+')}")


def write(runs: Runs) -> None:
    """Write the gains from the study's collected records, as `files.COMPARISON_FORMATS`."""
    plan = runs.plan
    long = {name: of_table(runs, table) for name, table in plan.tables.items()}
    file = partial(gains_file, plan.study)
    output.write_long([*chain(*long.values())], SCHEMA, file)
    sections = [(table.title, wide(table, long[name])) for name, table in plan.tables.items()]
    values = {"study": plan.study, "note": plan.note, "sections": sections}
    output.write_text("gains.md.j2", values, file("md"))
