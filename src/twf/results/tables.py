"""A study's tables in the shape of the paper's Tables 1-3, rendered from its estimates."""

import json
from collections.abc import Collection
from typing import Any

import pandas as pd
from markupsafe import Markup

from twf.files import metrics_file, table_file, write_text
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
COLUMNS = ["title", "name", "method", "variant", "buffer", "protocol", "n", "n_planned"]
COLUMNS += ["diverged", "mean", "sd", "low", "high", "paper", "verdict", "note", "ff"]


def write(results: Results, of_cells: pd.DataFrame, tables: Collection[Table]) -> None:
    """Write tables: as CSV with a row for each cell, and in Markdown, which carries a mark."""
    for table in tables:
        mark = results.mark(results.plan.runs_of(table))
        about = table.title, note(table, of_cells), results.plan.note, FORGETTING[table.forgetting]
        caption = show.escape_markdown(" ".join(text for text in about if text))
        rows = text_rows(table, of_cells)
        titled = [row | {"Method": show.escape_markdown(row["Method"])} for row in rows]
        frame = _wide(table, of_cells)[COLUMNS]
        markdown = f"{caption}\n\n{show.markdown(titled)}\n<!-- {mark} -->\n"
        csv = frame.assign(buffer=show.null_buffer(frame)).to_csv(index=False)
        for text, ending in ((markdown, "md"), (csv, "csv")):
            write_text(table_file(results.plan.study, table.name, ending), text)


def _wide(table: Table, of_cells: pd.DataFrame) -> pd.DataFrame:
    """A row for each cell of a table: accuracy, `ff`, and as `ff_printed` that of the paper."""
    rows = of_cells[of_cells["table"] == table.name].set_index("name", drop=False)
    by = dict(list(rows.groupby("quantity")))
    shown = by["ff" if table.forgetting == "published" else "ff_paper"]
    return by["faa"].assign(ff=shown["mean"], ff_printed=by["ff"]["paper"])


def text_rows(table: Table, of_cells: pd.DataFrame) -> list[TextRow]:
    """A table as HTML within Markdown, methods without rehearsal first.

    A cell is `71.20 ± 1.30 (12.30)<br>69.91 to 72.49, n=5<br>paper 72.00, undecided`, in bold if it
    looks like the highest with a buffer whose runs all finished, and empty if it was not planned.
    A method without rehearsal has the same number in the columns of all buffers.
    """
    cells = _wide(table, of_cells)
    whole = cells["n"] == cells["n_planned"]
    shown = cells["mean"].where((cells["buffer"] > 0) & whole).round(2)
    best = shown == shown.groupby([cells["protocol"], cells["buffer"]]).transform("max")
    buffers = [buffer or 0 for buffer in table.buffers] or [0]
    heads = [show.place(protocol, buffer) for protocol in table.protocols for buffer in buffers]
    order = sorted(table.rows, key=lambda row: METHODS[row[0]].rehearsal)
    rows = {row: {"Method": table.rows[row]} | dict.fromkeys(heads, "") for row in order}
    for cell in show.rows(cells.assign(best=best)):
        rehearses = METHODS[cell["method"]].rehearsal
        for buffer in [cell["buffer"]] if rehearses else buffers:
            place = show.place(cell["protocol"], buffer)
            rows[cell["method"], cell["variant"] or None][place] = _text(cell)
    return [*rows.values()]


def _text(cell: dict[str, Any]) -> Markup:
    """A cell of a table: the mean with its spread, what the mean is of, the paper's number."""
    mean = number(cell["mean"]) + (f" ± {cell['sd']:.2f}" if cell["n"] > 1 else "")
    accuracy = f"<b>{mean}</b>" if cell["best"] else mean
    about = [] if pd.isna(cell["low"]) else [show.interval(cell["low"], cell["high"])]
    about.append(_count(cell))
    about += [f"{cell['diverged']} diverged"] if cell["diverged"] else []
    about += ["untuned"] if cell["note"] else []
    lines = [f"{accuracy} {in_parentheses(cell['ff'])}".rstrip(), ", ".join(about)]
    if not pd.isna(cell["paper"]):
        paper = f"paper {number(cell['paper'])} {in_parentheses(cell['ff_printed'])}".rstrip()
        lines.append(f"{paper}, {cell['verdict']}")
    return Markup("<br>".join(lines))  # noqa: S704 - numbers


def _count(row: dict[str, Any]) -> str:
    """The number of seeds, and beside it that of planned ones where some are not finished."""
    return f"n={row['n']}" + f"/{row['n_planned']}" * (row["n"] < row["n_planned"])


def note(table: Table, of_cells: pd.DataFrame) -> str:
    """What the numbers of a table are, in plain text; `FORGETTING` adds what FF is."""
    text = (
        "Final average accuracy ± sample standard deviation, and final forgetting (FF) in "
        "parentheses, in per cent; below, Student's 95 % interval of the mean and the number of "
        "seeds, n=a/b where only a of b planned runs finished. Bold: the highest of the methods "
        f"with a buffer whose runs all finished. Pretrained on {table.source}."
    )
    notes = of_cells.loc[of_cells["table"] == table.name, "note"]
    if names := sorted({note.removeprefix("untuned: ") for note in notes if note}):
        text += f" Untuned: the paper does not print {', '.join(names)}, and no search chose it."
    return text


# Gains


def gain_rows(table: Table, gains: pd.DataFrame) -> list[TextRow]:
    """A table's gains for the report, a row for each method or variant; none where none has run."""
    shown = gains[gains["table"] == table.name]
    if not shown["n"].any():
        return []
    prefix = "" if table.variants else "over_"
    places = dict.fromkeys(map(show.place, shown["protocol"], shown["buffer"]), "—")
    rows: dict[str, TextRow] = {}
    for gain in show.rows(shown):
        lines = [show.estimate(gain["mean"], gain["low"], gain["high"])]
        lines[0] += f" {_count(gain)}" if 0 < gain["n"] < gain["n_planned"] else ""
        lines += [] if pd.isna(gain["paper"]) else [f"paper {number(gain['paper'], '+')}"]
        name = f"{gain[f'{prefix}method']}.{gain[f'{prefix}variant']}"
        row = rows.setdefault(name, {over(table): gain["title"]} | places)
        row[show.place(gain["protocol"], gain["buffer"])] = Markup("<br>".join(lines))  # noqa: S704
    return [*rows.values()]


def over(table: Table) -> str:
    """What the gains of a table are, as a heading over a method's or variant's title."""
    return "Change by" if table.variants else f"{METHODS[estimates.REFERENCE].title} minus"


# DVC's metrics


def write_metrics(plan: Plan, frame: pd.DataFrame) -> None:
    """Write mean final average accuracy by method, in per cent, for `dvc metrics` and `dvc exp`.

    In the first column of the first table: of the methods with a buffer, with its smallest. A
    method without a value is left out; `missing` is the number of planned runs that the means lack:
    a change of such a mean may be a change of its runs.
    """
    values: dict[str, float] = {}
    for table in list(plan.tables.values())[:1]:
        where = frame[["table", "kind", "quantity", "protocol", "buffer"]]
        buffer = next(filter(None, table.buffers), 0)
        shown = frame[
            (where == [table.name, "cell", "faa", table.protocols[0], buffer]).all(axis=1)
        ]
        for row in show.rows(shown[shown["mean"].notna()]):
            values[f"{row['method']}.{row['variant']}".rstrip(".")] = round(row["mean"], 2)
        if missing := int((shown["n_planned"] - shown["n"]).sum()):
            values["missing"] = missing
    write_text(metrics_file(plan.study), json.dumps(values, indent=2) + "\n")
