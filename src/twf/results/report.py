"""The report of a study: one HTML file that needs nothing else, on a screen or printed."""

from __future__ import annotations

import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from twf.errors import UserError
from twf.evaluation import metrics
from twf.files import atomic, report_file, table_file
from twf.hyperparameters import METHODS
from twf.params import PROTOCOLS
from twf.results import record, search, tables
from twf.study import Plan, Run, Table

STATUSES = ("finished", "diverged", "stale", "unreadable", "missing")

# Okabe and Ito's palette, which the colour-blind can tell apart; the marker alone does in print.
_COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#0072B2", "#CC79A7")
_MARKERS = ("*", "o", "s", "^", "D", "v", "P", "X", "<", ">")

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
    """Write the report of a study from its collected records and its tables.

    A planned run without a record is shown as missing. Raises `UserError` where the collected
    records or a table have not been made.
    """
    records = record.read_collected(plan.study)
    rows = tables.records(plan, records)
    for row in rows.values():
        row["provenance"] = record.provenance(row)
    page = _environment.get_template("report.html.j2").render(
        title=plan.title,
        study=plan.study,
        summary=_summary(plan, rows),
        protocols=[tables.PROTOCOL_TITLES[protocol] for protocol in PROTOCOLS],
        sections=[_section(plan, table, rows) for table in plan.tables.values()],
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


def _section(plan: Plan, table: Table, rows: Rows) -> dict[str, Any]:
    """A table and its charts, for the template."""
    path = table_file(plan.study, table.name, "parquet")
    try:
        long = pd.read_parquet(path)
    except FileNotFoundError:
        raise UserError(f"no {path}: make the study's tables before its report") from None
    charts = []
    for buffer in table.buffers or [None]:
        of = f"; methods with rehearsal have a buffer of {buffer}" if buffer else ""
        caption = f"Class-IL accuracy over the tasks seen so far, mean over seeds{of}."
        charts.append({"svg": _chart(table, buffer, rows), "caption": caption})
    charts += _probe_charts(table, rows)
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


def _curve(matrix: metrics.Matrix) -> list[float]:
    """The average accuracy over the tasks seen, after each task; NaN before Joint's only phase."""
    tasks = len(matrix[0])
    if len(matrix) == 1:
        return [float("nan")] * (tasks - 1) + [metrics.final_average_accuracy(matrix)]
    return [sum(matrix[t][: t + 1]) / (t + 1) for t in range(tasks)]


def _chart(table: Table, buffer: int | None, rows: Rows) -> Markup | None:
    """Class-IL accuracy after each task, of the methods with one buffer and of those without any.

    An SVG element without text from data, hence safe; None where no such run has finished.
    """
    figure = Figure(figsize=(4.6, 3.8), layout="constrained")
    axes = figure.subplots()
    for cell in table.cells:
        if cell.protocol != "class-il" or cell.buffer not in (None, buffer):
            continue
        found = [rows[run] for run in cell.runs.values() if run in rows]
        finished = [row for row in found if row["status"] == "finished"]
        if not finished:
            continue
        means = np.mean([_curve(tables.accuracy(row, cell.protocol)) for row in finished], axis=0)
        named: list[tuple[str, str | None]] = [(method, None) for method in METHODS]
        styles = list(table.rows) if table.variants else named
        style = styles.index((cell.method, cell.variant))
        axes.plot(
            np.arange(1, len(means) + 1),
            means,
            color=_COLOURS[style % len(_COLOURS)],
            marker=_MARKERS[style % len(_MARKERS)],
            linestyle="none" if np.isnan(means[0]) else "-",
            markersize=10 if style == 0 else 6,
            zorder=len(styles) + 2 - style,  # Joint is one point: on top
            label=table.rows[cell.method, cell.variant],
        )
    if not axes.lines:
        return None
    axes.set(xlabel="tasks trained", ylabel="average accuracy, per cent", ylim=(0, 103))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper left", ncols=3, frameon=False)
    return _svg(figure)


def _probe_charts(table: Table, rows: Rows) -> list[dict[str, Any]]:
    """How the initialization is forgotten, of each row whose runs were probed; mean over seeds."""
    charts = []
    for cell in table.cells:
        found = [rows[run] for run in cell.runs.values() if run in rows]
        probed = [row for row in found if row["status"] == "finished" and row["cka"]]
        if not probed:
            continue
        figure = Figure(figsize=(4.6, 5.6), layout="constrained")
        upper, lower = figure.subplots(2, sharex=True)
        panels = (
            (upper, "cka", ("stem", *(f"Layer {i}" for i in range(1, 5)))),
            (lower, "nearest_neighbours", ("Layer 3", "Layer 4")),
        )
        for axes, column, names in panels:
            means = np.mean([row[column] for row in probed], axis=0)  # [phases + 1, layers]
            offset = 5 - len(names)  # a layer looks the same in both panels
            for i, name in enumerate(names):
                style = {"color": _COLOURS[i + offset], "marker": _MARKERS[i + offset]}
                axes.plot(means[:, i], label=name, **style)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        upper.set(ylabel="CKA with the initial network")
        lower.set(xlabel="tasks trained", ylabel="k-NN accuracy on the source, per cent")
        figure.legend(
            *upper.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False
        )
        title = table.rows[cell.method, cell.variant]
        charts.append(
            {"svg": _svg(figure), "caption": f"{title}: how the initialization is forgotten."}
        )
    return charts


def _svg(figure: Figure) -> Markup:
    """A figure as an SVG element: the same bytes each time, and no identifiers that could clash."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "twf"}):
        # Without these entries there is no metadata element, which would name the day.
        figure.savefig(
            file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    svg = file.getvalue()
    # The numbered identifiers are referred to by nothing, and alike in each figure.
    return Markup(re.sub(r' id="[a-zA-Z0-9.]*_\d+"', "", svg[svg.index("<svg") :]))
