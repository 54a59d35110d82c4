"""The cells of a study's tables, and the tables in the shape of the paper's Tables 1-3.

`of_tables` gives a row for each cell, its means over finished runs alone; `layout` the same as
text, from which the Markdown, LaTeX and HTML templates are filled. A record's `accuracy_PROTOCOL`
becomes scores in `frame.SCORES`, these become means and spreads in `means`, and those text in
`_entry`; the paper's numbers are of `printed`, and what is untuned of `search`. One table is made
of its runs' records, all of a study of those that `twf collect` has joined.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa

from twf.files import table_file
from twf.results import search, show, statistics
from twf.results.frame import SCORES, Results
from twf.results.printed import PLACE, key_at, printed
from twf.results.show import PROTOCOL_TITLES, in_parentheses, number
from twf.study import Table
from twf.study.methods import METHODS
from twf.study.types import Fidelity

SPREADS = ("faa", "ff", "ff_paper")  # the scores whose spread is told; of the others, the mean

SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("cell", pa.string()),  # what tells it from the others of its table
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
        ("faa_low", pa.float64()),  # the ends of Student's 95 % interval
        ("faa_high", pa.float64()),
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
        ("printed_faa", pa.float64()),
        ("printed_ff", pa.float64()),
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


def means(members: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """What the runs of each cell give: a row for each group of rows of `Results.members`."""
    groups = members.groupby(by, sort=False)
    finished = members[members["status"] == "finished"].groupby(by, sort=False)
    counts = {
        "n": finished.size(),
        "n_planned": groups.size(),
        "n_diverged": members[members["status"] == "diverged"].groupby(by).size(),
    }
    frame = pd.DataFrame(counts, index=groups.size().index).fillna(0).astype(int)
    for score in SCORES:
        values = statistics.summary(groups[score], score)
        frame = frame.join(values if score in SPREADS else values[f"{score}_mean"])
    frame["precisions"] = finished["precision"].agg(lambda of: sorted(set(of.dropna())))
    frame["runs"] = finished["run"].agg(list)
    return frame.assign(precisions=lists(frame["precisions"]), runs=lists(frame["runs"]))


def lists(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column of lists, with an empty one for null."""
    return column.map(lambda value: value if isinstance(value, list) else [])


def of_tables(results: Results, tables: Collection[Table] | None = None) -> pd.DataFrame:
    """A row of `SCHEMA` for each cell of some tables, of all by default, in their order.

    Raises `UserError` where the paper's numbers are missing.
    """
    tables = results.plan.tables.values() if tables is None else tables
    names = [table.name for table in tables]
    members = results.members[results.members["table"].isin(names)]
    place = members.groupby(["table", "cell"], sort=False)[[*PLACE, "printed_variant"]].first()
    frame = place.join(means(members, ["table", "cell"])).reset_index()
    numbers = printed().rename(columns={"variant": "printed_variant"})
    alike = [name for name in PLACE if name != "variant"] + ["printed_variant"]
    frame = frame.merge(numbers, on=alike, how="left")
    untuned = search.untuned(results)
    keys = frame[PLACE].itertuples(index=False, name=None)
    frame["untuned"] = [untuned.get(key_at(key), "") for key in keys]
    sources = {table.name: table.source for table in tables}
    return frame.assign(source=frame["table"].map(sources))


def of_results(results: Results) -> pd.DataFrame:
    """The cells of all tables as they were written.

    Raises `UserError` where they were not, or are of other records or another plan.
    """
    study, parts = results.plan.study, [pd.DataFrame(columns=SCHEMA.names)]
    for table in results.plan.tables:
        path, records = table_file(study, table, "parquet"), results.fingerprint(table)
        parts.append(show.read(path, SCHEMA, f"`twf table {study}`", records))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def write(results: Results, tables: Collection[Table]) -> None:
    """Write some of a study's tables from its runs' records, in each of `files.TABLE_FORMATS`.

    Parquet and CSV have a row for each cell, Markdown and LaTeX (with booktabs) the layout.
    """
    whole = of_tables(results, tables)
    noted = f" {results.plan.note}" if results.plan.note else ""
    for table in tables:
        cells = whole[whole["table"] == table.name]
        values = layout(table, cells)
        values["caption"] = f"{table.title}. {values['caption']}{noted}"
        values["remarks"] = " ".join([*values["remarks"], FORGETTING[table.forgetting]])
        file = partial(table_file, results.plan.study, table.name)
        show.write(cells, SCHEMA, file, results.fingerprint(table.name))
        show.fill("table.md.j2", values, file("md"))
        show.fill("table.tex.j2", values, file("tex"))


@dataclass(frozen=True)
class Entry:
    """A cell as text; all of it is empty where none was planned."""

    span: int  # the number of columns it stands for
    accuracy: str = ""  # '71.20 ± 1.30', or a dash
    forgetting: str = ""  # '(12.30)', or nothing
    remark: str = ""  # 'n=2/3, 1 diverged, †, untuned', or nothing
    printed: str = ""  # '83.65 (11.59)', or nothing
    interval: str = ""  # '69.71 to 72.69', or a dash
    best: bool = False
    run: str = ""  # the first that has finished


def layout(table: Table, cells: pd.DataFrame) -> dict[str, Any]:
    """A table's cells for a template, in the order of the plan: methods without rehearsal first.

    A row has Class-IL's entries, then Task-IL's. An entry of a method without rehearsal spans the
    columns of all buffers; one that was not planned is blank.
    """
    rows = cells.assign(shown=cells["faa_mean"].map(number))
    whole = rows["n"] == rows["n_planned"]
    compared = rows[whole & rows["method"].map(lambda name: METHODS[name].rehearsal)]
    highest = compared.groupby(["protocol", "buffer"])["faa_mean"].max().map(number)
    of = {(r["method"], r["variant"], r["protocol"], r["buffer"]): r for r in show.rows(rows)}

    def entry(key: tuple[str, str], place: tuple[Any, int], span: int) -> Entry:
        row = of.get((*key, *place))
        if row is None:
            return Entry(span)
        finished = METHODS[key[0]].rehearsal and row["n"] == row["n_planned"]
        # bold are all that look like the highest
        return _entry(table, row, finished and row["shown"] == highest.get(place), span)

    headings = ["none" if not buffer else str(buffer) for buffer in table.buffers] or ["—"]
    groups = []
    for rehearsal in (False, True):
        buffers = [buffer or 0 for buffer in table.buffers] if rehearsal else [0]
        span = 1 if rehearsal else len(headings)
        places = [(protocol, buffer) for protocol in table.protocols for buffer in buffers]
        groups.append(
            [
                (title, [entry((method, variant or ""), place, span) for place in places])
                for (method, variant), title in table.rows.items()
                if METHODS[method].rehearsal == rehearsal
            ]
        )
    return {
        "name": table.name,
        "caption": caption(table),
        "remarks": remarks(table, cells),
        "protocols": [PROTOCOL_TITLES[protocol] for protocol in table.protocols],
        "columns": headings,
        "groups": groups,
    }


def _entry(table: Table, row: dict[str, Any], best: bool, span: int) -> Entry:
    said = []
    if row["n"] < row["n_planned"] and row["n"] + row["n_diverged"]:
        said.append(f"n={row['n']}/{row['n_planned']}")
    if row["n_diverged"]:
        said.append(f"{row['n_diverged']} diverged")
    if len(row["precisions"]) > 1:
        said.append(show.MIXED)
    if row["untuned"]:
        said.append("untuned")
    printed_faa = "" if pd.isna(row["printed_faa"]) else number(row["printed_faa"])
    return Entry(
        span,
        accuracy=row["shown"] + (f" ± {row['faa_std']:.2f}" if row["n"] > 1 else ""),
        forgetting=in_parentheses(row[FORGETTING_COLUMN[table.forgetting]]),
        remark=", ".join(said),
        printed=f"{printed_faa} {in_parentheses(row['printed_ff'])}".rstrip(),
        interval=show.interval(row["faa_low"], row["faa_high"]),
        best=best,
        run=next(iter(row["runs"]), ""),
    )


def caption(table: Table) -> str:
    """What the numbers of a table are, in plain text."""
    seeds = max(len(cell.runs) for cell in table.cells)
    spread = f" ± sample standard deviation over {seeds} seeds" if seeds > 1 else ""
    return (
        f"Final average accuracy{spread}, and final forgetting (FF) in parentheses, in per cent"
        + ("." if spread else " (one seed: no spread, no interval).")
    )


def remarks(table: Table, cells: pd.DataFrame) -> list[str]:
    """What else is to be said below a table, a sentence each; `FORGETTING` adds what FF is."""
    parts = [f"Pretrained on {table.source}."]
    if table.buffers:
        parts.append(
            "Bold: the highest accuracy among the methods with a buffer, of cells whose runs have "
            "all finished."
        )
    if (cells["n"] < cells["n_planned"]).any():
        parts.append("n=a/b: a of b planned runs finished; —: none did.")
    mixed = sorted({name for of in cells["precisions"] if len(of) > 1 for name in of})
    if mixed:
        parts.append(f"{show.MIXED}: its runs differ in precision ({', '.join(mixed)}).")
    if untuned := sorted(set(cells["untuned"]) - {""}):
        parts.append(
            f"Untuned: the paper does not print {', '.join(untuned)}, and no search has chosen it."
        )
    return parts
