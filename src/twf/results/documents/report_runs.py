"""A study's runs for its report: a row each, with what opens below it, and all of them as CSV."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd

from twf.files import log_file
from twf.learning.evaluation import metrics
from twf.results import record, tables
from twf.study import Plan, Run
from twf.study.params import PROTOCOLS

Rows = dict[str, dict[str, Any]]  # records by run, provenance decoded

POINTS = 60  # of a loss curve: 2,000 runs have to fit into a page
WIDTH, HEIGHT = 240, 48  # of a loss curve, in units of the drawing


def entries(plan: Plan, rows: Rows, losses: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Every planned run, with or without a record, for the template."""
    return [_entry(run, rows.get(run.id), losses.get(run.id, [])) for run in plan.runs.values()]


def _entry(run: Run, row: dict[str, Any] | None, losses: list[float]) -> dict[str, Any]:
    if row is None:
        row = dict.fromkeys(record.SCHEMA.names, None) | {"status": "missing", "provenance": {}}
    details = {"parameters": json.loads(run.parameters)} | row["provenance"]
    return {
        "id": run.id,
        "seed": run.seed,
        "status": row["status"],
        "reason": row["reason"],
        "results": [_result(row, protocol) for protocol in PROTOCOLS],
        "seconds": "—" if row["seconds"] is None else f"{row['seconds']:.1f}",
        "device": row["device"] or "—",
        "details": {name: _lines(values) for name, values in details.items()},
        "memory": row["peak_memory_mib"],
        "started": row["started"] and f"{row['started']:%Y-%m-%d %H:%M} UTC",
        "curve": curve(losses),
        "command": f"twf run {run.study} {run.id}",
        "log": str(log_file(run.study, run.id)),
    }


def _lines(values: Any) -> str:
    """What a provenance has under one name as text: a line for each of its values."""
    if not isinstance(values, dict):
        return json.dumps(values, ensure_ascii=False)
    lines = (f"{key}: {json.dumps(v, ensure_ascii=False)}" for key, v in sorted(values.items()))
    return "\n".join(lines)


def _result(row: dict[str, Any], protocol: Any) -> str:
    """A run's FAA (FF), in per cent; a dash where it has not finished."""
    if row["status"] != "finished":
        return "—"
    matrix = tables.accuracy(row, protocol)
    forgetting = metrics.forgetting(matrix)
    suffix = "" if forgetting is None else f" ({forgetting:.2f})"
    return f"{metrics.final_average_accuracy(matrix):.2f}{suffix}"


def curve(losses: list[float]) -> dict[str, Any] | None:
    """A run's loss over its epochs as the points of a line, from 0 to the highest value.

    At most `POINTS` of the epochs, evenly spaced, the first and the last among them; epochs whose
    loss is not finite are left out. None with fewer than two.
    """
    finite = [(epoch, loss) for epoch, loss in enumerate(losses) if math.isfinite(loss)]
    if len(finite) < 2:
        return None
    top = max(loss for _, loss in finite) or 1.0
    count = min(POINTS, len(finite))
    chosen = [finite[i * (len(finite) - 1) // (count - 1)] for i in range(count)]
    across = WIDTH / (len(losses) - 1)
    points = (f"{across * e:.0f},{HEIGHT * (1 - max(loss, 0) / top):.0f}" for e, loss in chosen)
    return {
        "points": " ".join(points),
        "epochs": len(losses),
        "first": f"{finite[0][1]:.4g}",
        "last": f"{finite[-1][1]:.4g}",
        "highest": f"{top:.4g}",
    }


def frame(plan: Plan, rows: Rows) -> pd.DataFrame:
    """A row for each planned run: where it stands, what it gave (per cent), what it cost."""
    long = []
    for run in plan.runs.values():
        row = rows.get(run.id) or dict.fromkeys(record.SCHEMA.names) | {"status": "missing"}
        place = run.model_dump(include={"benchmark", "source", "method", "buffer", "seed"})
        results = {}
        for protocol in PROTOCOLS:
            matrix = tables.accuracy(row, protocol) if row["status"] == "finished" else None
            name = protocol.replace("-", "_")
            results[f"faa_{name}"] = matrix and metrics.final_average_accuracy(matrix)
            results[f"ff_{name}"] = matrix and metrics.forgetting(matrix)
        cost = {name: row[name] for name in ("seconds", "peak_memory_mib", "started", "device")}
        status = {"status": row["status"], "reason": row["reason"]}
        long.append({"run": run.id} | place | status | results | cost | {"digest": run.digest})
    return pd.DataFrame(long).astype({"buffer": "Int64"})
