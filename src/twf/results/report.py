"""The report of a study: one HTML file that needs nothing else, on a screen or printed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from twf.errors import UserError
from twf.evaluation import metrics
from twf.files import atomic, figure_file, figure_index, report_file, table_file
from twf.hyperparameters import METHODS
from twf.params import PROTOCOLS
from twf.results import record, search, tables
from twf.study import Plan, Run, Table

STATUSES = ("finished", "diverged", "stale", "unreadable", "missing")

Rows = dict[str, dict[str, Any]]  # records by run

_environment = Environment(
    loader=PackageLoader("twf.results"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def write(plan: Plan) -> None:
    """Write the report of a study from its collected records, its tables and its figures.

    A planned run without a record is shown as missing. Raises `UserError` where the collected
    records, a table or the figures have not been made.
    """
    records = record.read_collected(plan.study)
    rows = tables.records(plan, records)
    for row in rows.values():
        row["provenance"] = record.provenance(row)
    charts = _charts(plan)
    page = _environment.get_template("report.html.j2").render(
        title=plan.title,
        study=plan.study,
        summary=_summary(plan, rows),
        protocols=[tables.PROTOCOL_TITLES[protocol] for protocol in PROTOCOLS],
        sections=[_section(plan, table, charts[name]) for name, table in plan.tables.items()],
        searched=search.results(plan, records),
        runs=[_run(run, rows.get(run.id)) for run in plan.runs.values()],
    )
    with atomic(report_file(plan.study)) as partial:
        partial.write_text(page)


def _summary(plan: Plan, rows: Rows) -> dict[str, str]:
    """What was run, on what, and with which code: a line each."""
    statuses = Counter(row["status"] for row in rows.values())
    statuses["missing"] = len(plan.runs) - len(rows)
    counts = [f"{statuses[status]} {status}" for status in STATUSES if statuses[status]]
    hours = sum(row["seconds"] or 0.0 for row in rows.values()) / 3600
    readable = [row for row in rows.values() if row["provenance"]]
    provenances = [row["provenance"] for row in readable]
    codes = [provenance["code"] for provenance in provenances]
    hashes = defaultdict(set)
    for row in readable:
        hashes[row["method"]].add(row["provenance"]["code"].get("method_hash"))
    mixed = [METHODS[method].title for method, found in hashes.items() if len(found) > 1]
    return {
        "Runs": f"{len(plan.runs)} planned: {', '.join(counts)}",
        "Seeds": _distinct(run.seed for run in plan.runs.values()),
        "Time of all runs": f"{hours:.2f} hours",
        "Device": _distinct(row["device"] for row in rows.values()),
        "torch": _distinct(provenance["versions"].get("torch") for provenance in provenances),
        "twf": _distinct(f"{c['version']}, commit {c['commit'] or 'unknown'}" for c in codes),
    } | ({"Code differs within": _distinct(mixed)} if mixed else {})


def _distinct(values: Iterable[Any]) -> str:
    """The different values, in order; a dash where there is none."""
    return "; ".join(map(str, sorted({value for value in values if value is not None}))) or "—"


def _section(plan: Plan, table: Table, charts: list[dict[str, Any]]) -> dict[str, Any]:
    """A table and its figures, for the template."""
    path = table_file(plan.study, table.name, "parquet")
    try:
        long = pd.read_parquet(path)
    except FileNotFoundError:
        raise UserError(f"no {path}: make the study's tables before its report") from None
    return {
        "title": table.title,
        "caption": tables.caption(table, long),
        "protocols": [tables.PROTOCOL_TITLES[protocol] for protocol in table.protocols],
        "columns": tables.columns(table),
        "groups": [tables.method_rows(table, long, rehearsal) for rehearsal in (False, True)],
        "charts": charts,
    }


def _run(run: Run, row: dict[str, Any] | None) -> dict[str, Any]:
    """A planned run, with or without a record, for the template."""
    if row is None:
        row = dict.fromkeys(record.SCHEMA.names) | {"status": "missing"}
    details = row["provenance"] or {"parameters": json.loads(run.parameters)}
    finished = row["status"] == "finished"
    return {
        "id": run.id,
        "seed": run.seed,
        "status": row["status"],
        "reason": row["reason"],
        "results": [
            _result(tables.accuracy(row, protocol)) if finished else "—" for protocol in PROTOCOLS
        ],
        "seconds": "—" if row["seconds"] is None else f"{row['seconds']:,.1f}",
        "device": row["device"] or "—",
        "details": json.dumps(details, indent=2, ensure_ascii=False),
    }


def _result(matrix: metrics.Matrix) -> str:
    """A run's FAA (FF), in per cent."""
    forgetting = metrics.forgetting(matrix)
    suffix = "" if forgetting is None else f" ({forgetting:.2f})"
    return f"{metrics.final_average_accuracy(matrix):.2f}{suffix}"


def _charts(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """The study's figures by table, for the template."""
    path = figure_index(plan.study)
    try:
        index = pd.read_csv(path, keep_default_na=False)
    except FileNotFoundError:
        raise UserError(
            f"no {path}: `twf figures {plan.study}` makes the figures that the report shows"
        ) from None
    charts = defaultdict(list)
    for row in index.to_dict("records"):
        svg = figure_file(plan.study, row["figure"], "svg").read_text()
        # Text from data is escaped in it.
        element = Markup(svg[svg.index("<svg") :])
        charts[row["table"]].append({"svg": element, "caption": f"{row['title']}. {row['note']}"})
    return charts
