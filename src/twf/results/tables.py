"""A study's tables in the shape of the paper's Tables 1-3, rendered from its estimates."""

import json
from collections.abc import Collection
from typing import Any

import pandas as pd
from markupsafe import Markup

from twf.files import atomic, metrics_file, table_file
from twf.results import estimates, show
from twf.results.frame import Results
from twf.results.show import TextRow, in_parentheses, number
from twf.study import Plan, Table
from twf.study.methods import METHODS
from twf.study.types import Fidelity

FORGETTING: dict[Fidelity, str] = {
    "published": "FF is the best accuracy on each task but the last, after any phase from its own "
    "on, the last phase included, minus its final accuracy, averaged over these tasks (as the "
    "published code computes it; the paper's formula leaves the last phase out).",
    "paper": "FF is the best accuracy on each task but the last, after any phase from its own on "
    "but the last, minus its final accuracy, averaged over these tasks (the paper's formula; the "
    "published code includes the last phase).",
}
WIDE = ["title", "name", "method", "variant", "buffer", "protocol", "n", "n_planned", "diverged"]
NAMED = {"mean": "faa", "sd": "faa_sd", "low": "faa_low", "high": "faa_high"}


def write(results: Results, of_cells: pd.DataFrame, tables: Collection[Table]) -> None:
    """Write tables: as CSV with a row for each cell, and in Markdown."""
    for table in tables:
        about = [f"{table.title}.", note(table, of_cells), results.plan.note or ""]
        caption = show.escape_markdown(" ".join([*about, FORGETTING[table.forgetting]]))
        frame = _wide(table, of_cells)[[*WIDE, *NAMED, "paper", "verdict", "note", "ff"]]
        frame = frame.assign(buffer=show.null_buffer(frame)).rename(columns=NAMED)
        texts = {
            "md": f"{caption}\n\n{show.markdown(text_rows(table, of_cells))}",
            "csv": frame.to_csv(index=False),
        }
        for ending, text in texts.items():
            with atomic(table_file(results.plan.study, table.name, ending)) as partial:
                partial.write_text(text, encoding="utf-8")


def _wide(table: Table, of_cells: pd.DataFrame) -> pd.DataFrame:
    """A row for each cell of a table: its accuracy, and as `ff` and `ff_printed` its forgetting."""
    rows = of_cells[of_cells["table"] == table.name].set_index("name", drop=False)
    faa, ff = rows[rows["quantity"] == "faa"], rows[rows["quantity"] == "ff"]
    shown = ff if table.forgetting == "published" else rows[rows["quantity"] == "ff_paper"]
    return faa.assign(ff=shown["mean"], ff_printed=ff["paper"])


def text_rows(table: Table, of_cells: pd.DataFrame, html: bool = False) -> list[TextRow]:
    """A table as Markdown, methods without rehearsal first: `71.20 ± 1.30 (12.30)<br>paper 72.00`.

    Such a method has the same number in the columns of all buffers; a cell that was not planned is
    empty. HTML has the interval, the seeds and the verdict too.
    """
    cells, highest = show.rows(_wide(table, of_cells)), dict[Any, str]()
    for row in sorted(cells, key=lambda row: row["mean"]):
        if METHODS[row["method"]].rehearsal and row["n"] == row["n_planned"]:
            highest[row["protocol"], row["buffer"]] = number(row["mean"])
    texts = {
        (row["method"], row["variant"], row["protocol"], row["buffer"]): _text(row, highest, html)
        for row in cells
    }
    places = [(p, buffer or 0) for p in table.protocols for buffer in table.buffers or [None]]
    return [
        {"Method": title if html else show.escape_markdown(title)}
        | {
            show.place(protocol, buffer): texts.get(
                (method, variant or "", protocol, buffer * METHODS[method].rehearsal), ""
            )
            for protocol, buffer in places
        }
        for (method, variant), title in sorted(
            table.rows.items(), key=lambda row: METHODS[row[0][0]].rehearsal
        )
    ]


def _text(row: dict[str, Any], highest: dict[Any, str], html: bool) -> str:
    """A cell; bold if it looks like the highest of those with a buffer whose runs all finished."""
    accuracy, whole = number(row["mean"]), row["n"] == row["n_planned"]
    spread = f"{accuracy} ± {row['sd']:.2f}" if row["n"] > 1 else accuracy
    bold = highest.get((row["protocol"], row["buffer"]))
    if whole and METHODS[row["method"]].rehearsal and accuracy == bold:
        spread = f"<b>{spread}</b>" if html else f"**{spread}**"
    lacks = not whole and row["n"] + row["diverged"]
    remarks = [f"n={row['n']}/{row['n_planned']}"] if lacks else []
    remarks += [f"{row['diverged']} diverged"] if row["diverged"] else []
    remarks += ["untuned"] if row["note"] else []
    lines = [" ".join(filter(None, (spread, in_parentheses(row["ff"]), ", ".join(remarks))))]
    if html and row["n"]:
        lines.append(f"{show.interval(row['low'], row['high'])}, n={row['n']}")
    if not pd.isna(row["paper"]):
        paper = f"paper {number(row['paper'])} {in_parentheses(row['ff_printed'])}".rstrip()
        lines.append(f"{paper}, {row['verdict']}" if html else paper)
    if html:
        lines[1:] = [f'<span class="soft">{line}</span>' for line in lines[1:]]
    return Markup("<br>".join(lines))  # noqa: S704 - numbers


def note(table: Table, of_cells: pd.DataFrame) -> str:
    """What the numbers of a table are, in plain text; `FORGETTING` adds what FF is."""
    seeds = max(len(cell.runs) for cell in table.cells)
    spread = f" ± sample standard deviation over {seeds} seeds" if seeds > 1 else ""
    parts = [
        f"Final average accuracy{spread}, and final forgetting (FF) in parentheses, in per cent"
        + ("." if spread else " (one seed: no spread, no interval)."),
        f"Pretrained on {table.source}.",
    ]
    if table.buffers:
        parts.append("Bold: the highest of the methods with a buffer whose runs all finished.")
    faa = of_cells[(of_cells["table"] == table.name) & (of_cells["quantity"] == "faa")]
    if (faa["n"] < faa["n_planned"]).any():
        parts.append("n=a/b: a of b planned runs finished; —: none did.")
    if names := sorted({note.removeprefix("untuned: ") for note in faa["note"] if note}):
        parts.append(
            f"Untuned: the paper does not print {', '.join(names)}, and no search has chosen it."
        )
    return " ".join(parts)


# Gains


def gain_rows(table: Table, gains: pd.DataFrame) -> list[TextRow]:
    """A table's gains for the report, a row for each method or variant; none where none has run."""
    rows = gains[gains["table"] == table.name]
    if not rows["n"].any():
        return []
    texts: dict[tuple[str, str], TextRow] = {}  # by method and variant
    prefix = "" if table.variants else "over_"
    for row in show.rows(rows):
        text = show.estimate(row["mean"], row["low"], row["high"])
        if 0 < row["n"] < row["n_planned"]:
            text += f" n={row['n']}/{row['n_planned']}"
        if not pd.isna(row["paper"]):
            text += f"<br>paper {number(row['paper'], '+')}"
        key = row[f"{prefix}method"], row[f"{prefix}variant"]
        of_row = texts.setdefault(key, {over(table): row["title"]})
        of_row[show.place(row["protocol"], row["buffer"])] = Markup(text)  # noqa: S704 - numbers
    heads = dict.fromkeys(head for text in texts.values() for head in text)
    return [{head: text.get(head, "—") for head in heads} for text in texts.values()]


def over(table: Table) -> str:
    """What the gains of a table are, as a heading over a method's or variant's title."""
    return "Change by" if table.variants else f"{METHODS[estimates.REFERENCE].title} minus"


def rule(table: Table) -> str:
    """In words, what the intervals of a table's gains are."""
    by_seed = "Student's 95 % interval of the differences by seed"
    return by_seed if table.variants else "Welch's 95 % interval"


# DVC's metrics


def write_metrics(plan: Plan, frame: pd.DataFrame) -> None:
    """Write mean final average accuracy by method, in per cent, for `dvc metrics` and `dvc exp`.

    In the first column of the first table: of the methods with a buffer, with its smallest. A
    method without a value is left out; `missing` is the number of planned runs that the means lack:
    a change of such a mean may be a change of its runs.
    """
    values: dict[str, float] = {}
    for table in list(plan.tables.values())[:1]:
        shown = frame[(frame["table"] == table.name) & (frame["quantity"] == "faa")]
        shown = shown[(shown["kind"] == "cell") & (shown["protocol"] == table.protocols[0])]
        shown = shown[shown["buffer"] == next(filter(None, table.buffers), 0)]
        for row in show.rows(shown[shown["mean"].notna()]):
            values[f"{row['method']}.{row['variant']}".rstrip(".")] = round(row["mean"], 2)
        if missing := int((shown["n_planned"] - shown["n"]).sum()):
            values["missing"] = missing
    with atomic(metrics_file(plan.study)) as partial:
        partial.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
