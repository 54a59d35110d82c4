"""A study's tables in the shape of the paper's Tables 1-3, rendered from its estimates.

`layout` gives a table as text, from which Markdown, LaTeX and the report are filled.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from twf.files import atomic, metrics_file, table_file
from twf.results import estimates, show
from twf.results.frame import Results
from twf.results.show import PROTOCOL_TITLES, TextRow, in_parentheses, number
from twf.study import Plan, Table
from twf.study.methods import METHODS
from twf.study.types import Fidelity

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
FORGETTING_SHOWN: dict[Fidelity, str] = {"published": "ff", "paper": "ff_paper"}
WIDE = ["title", "name", "method", "variant", "buffer", "protocol", "n", "n_planned", "diverged"]


def write(results: Results, of_cells: pd.DataFrame, tables: Collection[Table]) -> None:
    """Write tables: as CSV with a row for each cell, in Markdown, and in LaTeX (with booktabs)."""
    noted = f" {results.plan.note}" if results.plan.note else ""
    for table in tables:
        values = layout(table, of_cells)
        values["caption"] = f"{table.title}. {values['caption']}{noted}"
        values["remarks"] = " ".join([*values["remarks"], FORGETTING[table.forgetting]])
        study, name = results.plan.study, table.name
        with atomic(table_file(study, name, "csv")) as partial:
            wide(table, of_cells).to_csv(partial, index=False)
        show.fill("table.md.j2", values, table_file(study, name, "md"))
        show.fill("table.tex.j2", values, table_file(study, name, "tex"))


def wide(table: Table, of_cells: pd.DataFrame) -> pd.DataFrame:
    """A row for each cell of a table: accuracy and its interval, forgetting, the paper's."""
    rows = of_cells[of_cells["table"] == table.name]
    faa = rows[rows["quantity"] == "faa"].set_index("name", drop=False)
    forgetting = rows[rows["quantity"] == FORGETTING_SHOWN[table.forgetting]].set_index("name")
    named = {"mean": "faa", "sd": "faa_sd", "low": "faa_low", "high": "faa_high"}
    frame = faa[[*WIDE, *named, "paper", "verdict", "note"]].rename(columns=named)
    return frame.assign(ff=forgetting["mean"], buffer=show.null_buffer(frame))


@dataclass(frozen=True)
class Entry:
    """A cell as text; all of it is empty where none was planned."""

    span: int  # the number of columns it stands for
    accuracy: str = ""  # '71.20 ± 1.30', or a dash
    forgetting: str = ""  # '(12.30)', or nothing
    remark: str = ""  # 'n=2/3, 1 diverged, †, untuned', or nothing
    printed: str = ""  # '83.65 (11.59)', or nothing
    interval: str = ""  # '69.71 to 72.69', or a dash
    seeds: str = ""  # 'n=3'
    best: bool = False


def layout(table: Table, of_cells: pd.DataFrame) -> dict[str, Any]:
    """A table's cells for a template, in the order of the plan: methods without rehearsal first.

    A row has Class-IL's entries, then Task-IL's. An entry of a method without rehearsal spans the
    columns of all buffers; one that was not planned is blank.
    """
    rows = of_cells[of_cells["table"] == table.name]
    faa = rows[rows["quantity"] == "faa"]
    whole = faa[(faa["n"] == faa["n_planned"]) & faa["method"].map(_rehearses).astype(bool)]
    highest = whole.groupby(["protocol", "buffer"])["mean"].max().map(number)
    key = ["method", "variant", "protocol", "buffer"]
    by_place = {tuple(row[k] for k in key): row for row in show.rows(faa)}
    shown = rows[rows["quantity"] == FORGETTING_SHOWN[table.forgetting]]
    forgetting = {tuple(row[k] for k in key): row["mean"] for row in show.rows(shown)}
    printed = rows[rows["quantity"] == "ff"]
    printed_ff = {tuple(row[k] for k in key): row["paper"] for row in show.rows(printed)}

    def entry(where: tuple[Any, ...], place: tuple[Any, int], span: int) -> Entry:
        row = by_place.get((*where, *place))
        if row is None:
            return Entry(span)
        text = number(row["mean"])
        finished = _rehearses(where[0]) and row["n"] == row["n_planned"]
        paper = "" if pd.isna(row["paper"]) else number(row["paper"])
        return Entry(
            span,
            accuracy=text + (f" ± {row['sd']:.2f}" if row["n"] > 1 else ""),
            forgetting=in_parentheses(forgetting[(*where, *place)]),
            remark=", ".join(_remarks(row)),
            printed=f"{paper} {in_parentheses(printed_ff[(*where, *place)])}".rstrip(),
            interval=show.interval(row["low"], row["high"]),
            seeds=f"n={row['n']}" if row["n"] else "",
            best=finished and text == highest.get(place),  # bold are all that look like the highest
        )

    headings = ["none" if not buffer else str(buffer) for buffer in table.buffers] or ["—"]
    groups = []
    for rehearsal in (False, True):
        buffers = [buffer or 0 for buffer in table.buffers] if rehearsal else [0]
        places = [(protocol, buffer) for protocol in table.protocols for buffer in buffers]
        span = 1 if rehearsal else len(headings)
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
        "remarks": remarks(table, faa),
        "protocols": [PROTOCOL_TITLES[protocol] for protocol in table.protocols],
        "columns": headings,
        "groups": groups,
    }


def _rehearses(method: str) -> bool:
    return METHODS[method].rehearsal


def _remarks(row: dict[str, Any]) -> list[str]:
    said = []
    if row["n"] < row["n_planned"] and row["n"] + row["diverged"]:
        said.append(f"n={row['n']}/{row['n_planned']}")
    if row["diverged"]:
        said.append(f"{row['diverged']} diverged")
    if row["note"]:
        said.append("untuned")
    return said


def caption(table: Table) -> str:
    """What the numbers of a table are, in plain text."""
    seeds = max(len(cell.runs) for cell in table.cells)
    spread = f" ± sample standard deviation over {seeds} seeds" if seeds > 1 else ""
    return (
        f"Final average accuracy{spread}, and final forgetting (FF) in parentheses, in per cent"
        + ("." if spread else " (one seed: no spread, no interval).")
    )


def remarks(table: Table, faa: pd.DataFrame) -> list[str]:
    """What else is to be said below a table, a sentence each; `FORGETTING` adds what FF is."""
    parts = [f"Pretrained on {table.source}."]
    if table.buffers:
        parts.append(
            "Bold: the highest accuracy among the methods with a buffer, of cells whose runs have "
            "all finished."
        )
    if (faa["n"] < faa["n_planned"]).any():
        parts.append("n=a/b: a of b planned runs finished; —: none did.")
    names = sorted(set(faa["note"].str.extract(r"untuned: ([^;]+)")[0].dropna()))
    if names:
        parts.append(
            f"Untuned: the paper does not print {', '.join(names)}, and no search has chosen it."
        )
    return parts


# Gains


def gain_rows(table: Table, gains: pd.DataFrame) -> list[TextRow]:
    """A table's gains for the report, a row for each method or variant; none where none has run."""
    rows = gains[gains["table"] == table.name]
    if not rows["n"].any():
        return []
    prefix = "" if table.variants or table.baseline else "over_"
    keys = [f"{prefix}method", f"{prefix}variant", "protocol", "buffer"]
    by_place = {tuple(row[key] for key in keys): row for row in show.rows(rows)}
    columns = {
        (protocol, buffer or 0): show.place(protocol, buffer)
        for protocol in table.protocols
        for buffer in table.buffers or [None]
        if any(place[2:] == (protocol, buffer or 0) for place in by_place)
    }
    texts = []
    for (method, variant), title in table.rows.items():
        key = method, variant or ""
        if any(place[:2] == key for place in by_place):
            # What has no buffer stands in each column, as in the table itself
            without = bool(table.variants) and not METHODS[method].rehearsal
            cells = {
                name: by_place.get((*key, protocol, 0 if without else buffer))
                for (protocol, buffer), name in columns.items()
            }
            texts.append({over(table): title} | {n: _gain(r) for n, r in cells.items()})
    return texts


def over(table: Table) -> str:
    """What the gains of a table are, as a heading over a method's or variant's title."""
    if table.variants:
        return "Change by"
    if table.baseline:
        return f"Minus {METHODS[table.baseline].title}"
    return f"{METHODS[estimates.REFERENCE].title} minus"


def rule(table: Table) -> str:
    """In words, what the intervals of a table's gains are."""
    if table.variants:
        return "Student's 95 % interval of the differences by seed"
    return "Welch's 95 % interval"


def _gain(row: Any) -> Markup:
    """A gain and the paper's: '+1.30 (-0.05 to +2.65) n=2/3 †<br>paper +3.28'."""
    if row is None:
        return Markup("—")
    parts = [show.estimate(row["mean"], row["low"], row["high"])]
    if 0 < row["n"] < row["n_planned"]:
        parts.append(f"n={row['n']}/{row['n_planned']}")
    paper = "" if pd.isna(row["paper"]) else f"<br>paper {number(row['paper'], '+')}"
    return Markup(" ".join(parts) + paper)  # noqa: S704 - numbers


# DVC's metrics


def metrics(plan: Plan, frame: pd.DataFrame) -> dict[str, Any]:
    """Mean final average accuracy by method, in per cent, in the first column of the first table.

    Of the methods with its smallest buffer, if it has any. A method without a value is left out;
    `missing` is the number of planned runs that the means lack: a change of such a mean may be a
    change of its runs.
    """
    for table in plan.tables.values():
        shown = frame[(frame["table"] == table.name) & (frame["quantity"] == "faa")]
        shown = shown[(shown["kind"] == "cell") & (shown["protocol"] == table.protocols[0])]
        shown = shown[shown["buffer"] == next(filter(None, table.buffers), 0)]
        names = (shown["method"] + " " + shown["variant"]).str.strip().str.replace(" ", ".")
        means = dict(zip(names, shown["mean"].round(2), strict=True))
        missing = int((shown["n_planned"] - shown["n"]).sum())
        values = {name: mean for name, mean in means.items() if not pd.isna(mean)}
        return values | ({"missing": missing} if missing else {})
    return {}


def write_metrics(plan: Plan, frame: pd.DataFrame) -> None:
    """Write `metrics` as JSON, for `dvc metrics` and `dvc exp`."""
    with atomic(metrics_file(plan.study)) as partial:
        partial.write_text(json.dumps(metrics(plan, frame), indent=2) + "\n", encoding="utf-8")
