"""The report of a study: one HTML file that needs nothing else, on a screen or printed."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup

from twf.errors import UserError
from twf.files import (
    atomic,
    figure_file,
    figure_index,
    model_card_file,
    report_file,
    statement_file,
)
from twf.results import output, record, search, tables
from twf.results.documents import report_runs, summary
from twf.results.output import Row, Texts, number
from twf.results.paper import claim_evaluation, comparison, gains, order
from twf.results.runs import Runs
from twf.study import Cell, Plan, Table
from twf.study.params import PROTOCOLS, Params

PAGE_LIMIT = 9_500_000  # bytes; figures that would make the page larger stay beside it
RUN_SIZE = 3_300  # bytes of a planned run in the page, with its part of all tables: measured
TEXT = 40  # characters; a column with a longer text may have several lines

_COMMAND = Markup(
    '<details><summary>command</summary><div class="command"><code>{}</code></div></details>'
)


class Download(NamedTuple):
    """A file inside the page."""

    name: str
    uri: str


class ShownFigure(NamedTuple):
    """A figure in the page, or, without `svg`, beside it."""

    caption: str
    path: Path
    svg: Markup | None
    download: Download | None
    folded: bool = False  # shown where it is asked for


def columns(rows: Sequence[Texts]) -> dict[str, str]:
    """The class of each column of a table, by its heading: number, text or none."""
    numbers = output.numeric(rows)
    texts = {
        name: [row[name] for row in rows if not isinstance(row[name], Markup)] for name in rows[0]
    }
    wide = {name for name, found in texts.items() if any(len(text) > TEXT for text in found)}
    return {n: "number" if n in numbers else "text" if n in wide else "" for n in rows[0]}


_environment = output.environment(html=True)
_environment.filters["columns"] = columns


def write(params: Params, runs: Runs) -> None:
    """Write the report of a study from its records, and from figures, statement and model cards.

    Of these three it names the command where they have not been made. Raises `UserError` where the
    list of figures names one that is not there.
    """
    plan = runs.plan
    long = {name: tables.cells(runs, table) for name, table in plan.tables.items()}
    compared = comparison.compare(params, runs)
    claims = claim_evaluation.evaluate_all(runs)
    gained = {name: gains.of_table(runs, table) for name, table in plan.tables.items()}
    descriptions = _descriptions(plan)
    figures = _figures(plan, sum(len(file.uri) for file in descriptions or []))
    made = {"figures": figures, "describe": descriptions}
    script, losses = _source("report.js"), record.read_losses(plan.study)
    first = next((table.experiment for table in plan.tables.values()), None)
    page = _environment.get_template("report.html.j2").render(
        title=plan.title,
        study=plan.study,
        note=plan.note,
        first=first,
        style=_source("report.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        facts=summary.facts(runs),
        agreement=summary.agreement(compared, claims),
        unfinished=[
            texts | {"Table": _link(f"table-{name}", texts["Table"])}
            for name, texts in summary.unfinished(runs).items()
        ],
        not_made=[f"twf {name} {plan.study}" for name, parts in made.items() if parts is None],
        sections=[
            tables.wide(table, long[name])
            | {
                "title": table.title,
                "experiment": table.experiment,
                "gains": gains.wide(table, gained[name], Markup),
                "figures": (figures or {}).get(name, []),
            }
            for name, table in plan.tables.items()
        ],
        cells=[
            (f"cell-{name}.{tables.cell_name(cell)}", _cell(table, cell, row))
            for name, table in plan.tables.items()
            for cell, row in zip(table.cells, long[name], strict=True)
        ],
        compared=[_compared(row) for row in compared],
        order=[order.entry(row) for row in order.compare(compared)],
        claims=[claim_evaluation.entry(row) for row in claims],
        searched=[search.entry(result) for result in search.results(runs)],
        run_columns={"Run": "", "Status": "", "Seed": "number"}
        | {output.PROTOCOL_TITLES[protocol]: "number" for protocol in PROTOCOLS}
        | {"Seconds": "number", "Device": ""},
        runs=[report_runs.entry(o, losses.get(run, [])) for run, o in runs.outcomes.items()],
        choices=summary.choices(params, plan),
        forgetting=tables.FORGETTING[params.switches(plan.study)["F8"]],
        provenance=summary.provenance(runs),
        descriptions=descriptions or [],
        downloads=[
            _download(f"{plan.study}-{name}.csv", text)
            for name, text in {
                "runs": output.csv(report_runs.frame(runs)),
                "cells": output.flat_csv([*chain(*long.values())], tables.SCHEMA),
                "comparison": output.flat_csv(compared, comparison.SCHEMA),
                "gains": output.flat_csv([*chain(*gained.values())], gains.SCHEMA),
            }.items()
        ],
    )
    with atomic(report_file(plan.study)) as partial:
        partial.write_text(page, encoding="utf-8")


def _source(name: str) -> Markup:
    """A file of this package that goes into the page as it is."""
    return Markup((Path(__file__).parent.parent / "templates" / name).read_text(encoding="utf-8"))  # noqa: S704


def _link(target: str, text: str) -> Markup:
    return Markup('<a href="#{}">{}</a>').format(quote(target), text)


def _download(name: str, data: str | bytes, kind: str = "csv") -> Download:
    content = data.encode() if isinstance(data, str) else data
    encoded = base64.b64encode(content).decode()
    return Download(name, f"data:text/{kind};charset=utf-8;base64,{encoded}")


def _descriptions(plan: Plan) -> list[Download] | None:
    """The reproducibility statement and the model cards; None where they are not all there."""
    files = [statement_file(plan.study), *(model_card_file(plan.study, s) for s in plan.sources)]
    if not all(path.exists() for path in files):
        return None
    names = [files[0].name, *(f"model-card-{path.name}" for path in files[1:])]
    return [
        _download(f"{plan.study}-{name}", path.read_bytes(), "markdown")
        for name, path in zip(names, files, strict=True)
    ]


def _compared(row: Row) -> Texts:
    """A cell of the paper beside ours, its command folded."""
    texts = {"Table": str(row["published_table"])} | comparison.entry(row)
    return texts | {"Command": _COMMAND.format(row["command"]) if row["command"] else "—"}


def _cell(table: Table, cell: Cell, row: Row) -> Texts:
    """A cell with links to its runs."""
    diverged = f", {row['n_diverged']} diverged" if row["n_diverged"] else ""
    runs = (_link(f"run-{run}", str(seed)) for seed, run in cell.runs.items())
    return {
        "Table": table.title,
        "Benchmark": f"{table.benchmark} from {table.source}",
        "Method": table.rows[cell.method, cell.variant],
        "Buffer": "—" if cell.buffer is None else str(cell.buffer),
        "Protocol": output.PROTOCOL_TITLES[cell.protocol],
        "FAA": number(row["faa_mean"]),
        "±": number(row["faa_std"]),
        "Interval": output.interval(row["faa_low"], row["faa_high"]),
        "FF": number(row[tables.FORGETTING_COLUMN[table.forgetting]]),
        "Paper": number(row["published_faa"]),
        "n": f"{row['n']}/{row['n_planned']}{diverged}",
        "Runs by seed": Markup(" ").join(runs),
    }


def _figures(plan: Plan, size: int) -> dict[str, list[ShownFigure]] | None:
    """The study's figures by table; None where they have not been made.

    `size` is that of other parts of the page, in bytes. Raises `UserError` where the list of
    figures names one that is not there.
    """
    index = figure_index(plan.study)
    if not index.exists():
        return None
    found = defaultdict(list)
    size += RUN_SIZE * len(plan.runs)
    for row in pd.read_csv(index, keep_default_na=False).to_dict("records"):
        drawing, data = (figure_file(plan.study, row["figure"], end) for end in ("svg", "csv"))
        for path in (drawing, data):
            if not path.exists():
                raise UserError(f"no {path}, which {index} lists: `twf figures {plan.study}`")
        svg, csv = drawing.read_text(encoding="utf-8"), data.read_bytes()
        size += len(svg) + len(csv) * 4 // 3
        # Text from data is escaped in it, and no script of it would be run.
        shown = Markup(svg[svg.index("<svg") :])  # noqa: S704
        fits = size <= PAGE_LIMIT
        parts = (shown if fits else None, _download(data.name, csv) if fits else None)
        folded = row["figure"].startswith("matrix.")  # one for each method
        caption = f"{row['title']}. {row['note']}"
        found[row["table"]].append(ShownFigure(caption, drawing, *parts, folded))
    return dict(found)
