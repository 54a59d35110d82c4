"""The report of a study: one HTML file that needs nothing else, on a screen or printed."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from twf.errors import UserError
from twf.files import (
    atomic,
    claims_file,
    comparison_file,
    figure_file,
    figure_index,
    model_card_file,
    report_file,
    statement_file,
    table_file,
)
from twf.results import output, record, search, tables
from twf.results.documents import report_runs, report_summary
from twf.results.paper import claim_evaluation, comparison
from twf.study import Cell, Plan, Table
from twf.study.params import PROTOCOLS

PAGE_LIMIT = 9_500_000  # bytes; figures that would make the page larger stay beside it
RUN_SIZE = 3_300  # bytes of a planned run in the page, with its part of all tables: measured

_environment = Environment(
    loader=PackageLoader("twf.results"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def write(plan: Plan) -> None:
    """Write the report of a study from its collected records, and from what was made of them.

    A planned run without a record is shown as missing, and so are tables, figures or a comparison
    that have not been made. Raises `UserError` where the records have not been collected.
    """
    records = record.read_collected(plan.study)
    rows = report_summary.rows_of(plan, records)
    study = plan.study
    frames = {
        name: output.read_made(table_file(study, name, "parquet"), f"twf table {study} {name}")
        for name in plan.tables
    }
    compared = output.read_made(comparison_file(study, "parquet"), f"twf compare {study}")
    claims = output.read_made(claims_file(study, "parquet"), f"twf compare {study}")
    descriptions = _descriptions(plan)
    described = [] if isinstance(descriptions, str) else descriptions
    figures = _figures(plan, sum(len(file["uri"]) for file in described))
    parts = [*frames.values(), compared, claims, figures, descriptions]
    script = _source("report.js")
    page = _environment.get_template("report.html.j2").render(
        title=plan.title,
        study=plan.study,
        style=_source("report.css"),
        script=script,
        script_hash=_sha256(script),
        facts=report_summary.facts(plan, rows),
        holes=report_summary.holes(plan, rows),
        not_made=list(dict.fromkeys(part for part in parts if isinstance(part, str))),
        provenance=report_summary.provenance(rows),
        protocols=[tables.PROTOCOL_TITLES[protocol] for protocol in PROTOCOLS],
        sections=[
            _section(table, frames[name], {} if isinstance(figures, str) else figures)
            for name, table in plan.tables.items()
        ],
        cells=[cell for name, table in plan.tables.items() for cell in _cells(table, frames[name])],
        searched=search.results(plan, records),
        runs=report_runs.entries(plan, rows, record.read_losses(plan.study)),
        descriptions=described,
        downloads=_downloads(plan, rows, frames, compared),
        **_beside_the_paper(compared, claims),
    )
    with atomic(report_file(plan.study)) as partial:
        partial.write_text(page)


def _source(name: str) -> Markup:
    """A file of this package that goes into the page as it is."""
    return Markup((Path(__file__).parent.parent / "templates" / name).read_text())  # noqa: S704


def _sha256(script: str) -> str:
    """What a content security policy calls a script by."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _download(name: str, data: str | bytes, kind: str = "csv") -> dict[str, str]:
    """A file inside the page: CSV, or Markdown."""
    content = data.encode() if isinstance(data, str) else data
    encoded = base64.b64encode(content).decode()
    return {"name": name, "uri": f"data:text/{kind};charset=utf-8;base64,{encoded}"}


def _descriptions(plan: Plan) -> list[dict[str, str]] | str:
    """The reproducibility statement and the model cards; the command, where they are not there."""
    files = [statement_file(plan.study), *(model_card_file(plan.study, s) for s in plan.sources)]
    if not all(path.exists() for path in files):
        return f"twf describe {plan.study}"
    names = [files[0].name, *(f"model-card-{path.name}" for path in files[1:])]
    return [
        _download(f"{plan.study}-{name}", path.read_bytes(), "markdown")
        for name, path in zip(names, files, strict=True)
    ]


def _downloads(
    plan: Plan,
    rows: report_runs.Rows,
    frames: dict[str, pd.DataFrame | str],
    compared: pd.DataFrame | str,
) -> list[dict[str, str]]:
    runs = report_runs.frame(plan, rows)
    found = [_download(f"{plan.study}-runs.csv", output.csv(runs))]
    made = [frame for frame in frames.values() if isinstance(frame, pd.DataFrame)]
    if made:
        cells = pd.concat([_flat(frame) for frame in made])
        found.append(_download(f"{plan.study}-cells.csv", output.csv(cells)))
    if isinstance(compared, pd.DataFrame):
        csv = output.csv(_flat(compared))
        found.append(_download(f"{plan.study}-comparison.csv", csv))
    return found


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """A long form with its lists as words."""
    lists = [name for name in ("runs", "devices") if name in frame]
    return frame.assign(**{name: frame[name].map(" ".join) for name in lists})


def _beside_the_paper(compared: pd.DataFrame | str, claims: pd.DataFrame | str) -> dict[str, Any]:
    """The comparison with the paper and its claims, for the template; empty where not made."""
    found: dict[str, Any] = {"agreement": [], "compared": [], "claims": [], "measured": False}
    if isinstance(compared, pd.DataFrame):
        found["agreement"] += report_summary.agreement(compared)
        found["measured"] = bool((compared["verdict"] != "not run").any())
        found["compared"] = [
            {"Table": str(row["published_table"])} | comparison.entry(row)
            for row in compared.astype({"buffer": "Int64"}).to_dict("records")
        ]
    if isinstance(claims, pd.DataFrame):
        found["agreement"] += report_summary.claim_counts(claims)
        found["claims"] = [claim_evaluation.entry(row) for row in claims.to_dict("records")]
    return found


def _section(
    table: Table, long: pd.DataFrame | str, figures: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """A table and its figures, for the template; without rows where it has not been made."""
    if isinstance(long, str):
        caption, groups = f"Not made yet: {long}", []
    else:
        caption = tables.caption(table, long)
        groups = [tables.method_rows(table, long, rehearsal) for rehearsal in (False, True)]
    return {
        "name": table.name,
        "title": table.title,
        "caption": caption,
        "protocols": [tables.PROTOCOL_TITLES[protocol] for protocol in table.protocols],
        "columns": tables.columns(table),
        "groups": groups,
        "figures": figures.get(table.name, []),
    }


def _cells(table: Table, long: pd.DataFrame | str) -> list[dict[str, Any]]:
    """The cells of a table, a row each, for the template."""
    if isinstance(long, str):
        return []
    found = {_name(row): row for row in long.astype({"buffer": "Int64"}).to_dict("records")}
    rows = []
    for cell in table.cells:
        name = tables.cell_name(cell.method, cell.variant, cell.buffer, cell.protocol)
        if name in found:
            rows.append({"table": table.name, "name": name} | _cell(table, cell, found[name]))
    return rows


def _name(row: dict[Any, Any]) -> str:
    variant = None if pd.isna(row["variant"]) else row["variant"]
    buffer = None if pd.isna(row["buffer"]) else int(row["buffer"])
    return tables.cell_name(row["method"], variant, buffer, row["protocol"])


def _cell(table: Table, cell: Cell, row: dict[Any, Any]) -> dict[str, Any]:
    def number(name: str) -> str:
        return "—" if pd.isna(row[name]) else f"{row[name]:.2f}"

    interval = "—" if pd.isna(row["faa_low"]) else f"{row['faa_low']:.2f} to {row['faa_high']:.2f}"
    diverged = f", {row['n_diverged']} diverged" if row["n_diverged"] else ""
    return {
        "texts": {
            "Table": table.title,
            "Benchmark": f"{table.benchmark} from {table.source}",
            "Method": table.rows[cell.method, cell.variant],
            "Buffer": "—" if cell.buffer is None else str(cell.buffer),
            "Protocol": tables.PROTOCOL_TITLES[cell.protocol],
            "FAA": number("faa_mean"),
            "±": number("faa_std"),
            "Interval": interval,
            "FF": number("ff_mean" if table.forgetting == "published" else "ff_paper_mean"),
            "Paper": number("published_faa"),
            "n": f"{row['n']}/{row['n_planned']}{diverged}",
        },
        "runs": cell.runs,
    }


def _figures(plan: Plan, size: int) -> dict[str, list[dict[str, Any]]] | str:
    """The study's figures by table, for the template; the command, where they have not been made.

    `size` is that of other parts of the page, in bytes. Raises `UserError` where the list of
    figures names one that is not there.
    """
    index = figure_index(plan.study)
    if not index.exists():
        return f"twf figures {plan.study}"
    found = defaultdict(list)
    size += RUN_SIZE * len(plan.runs)
    for row in pd.read_csv(index, keep_default_na=False).to_dict("records"):
        drawing, data = (figure_file(plan.study, row["figure"], end) for end in ("svg", "csv"))
        for path in (drawing, data):
            if not path.exists():
                raise UserError(f"no {path}, which {index} lists: `twf figures {plan.study}`")
        svg, csv = drawing.read_text(), data.read_bytes()
        size += len(svg) + len(csv) * 4 // 3
        fits = size <= PAGE_LIMIT
        figure = {
            "caption": f"{row['title']}. {row['note']}",
            "path": str(drawing),
            # Text from data is escaped in it, and no script of it would be run.
            "svg": Markup(svg[svg.index("<svg") :]) if fits else None,  # noqa: S704
            "download": _download(data.name, csv) if fits else None,
        }
        found[row["table"]].append(figure)
    return dict(found)
