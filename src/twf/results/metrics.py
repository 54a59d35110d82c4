"""The means of a study's cells as DVC's metrics: one small file, for `dvc metrics` and `dvc exp`.

A key is a table's name and a cell's in it, as in the report: `main.split-digits.twf.50.class-il`.
Spreads and numbers of seeds stand in the tables.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pyarrow as pa

from twf.files import atomic, metrics_file
from twf.results import record, search, statistics, tables
from twf.study import Plan


def metrics(plan: Plan, runs: pa.Table) -> dict[str, Any]:
    """What each cell's finished runs give, per cent, nested by the parts of its key.

    `faa` and `ff` are the means that the table shows; under `search`, `held_out_faa` is the
    best trial's. What has no value is left out. `missing` is the number of planned runs without
    one, where there are any: a change of such a mean may be a change of its runs.
    """
    found: dict[str, Any] = {}
    for name, table in plan.tables.items():
        long = tables.cells(plan, name, runs)
        for cell, row in zip(table.cells, long.to_dict("records"), strict=True):
            means = {"faa": row["faa_mean"], "ff": row[tables.FORGETTING_COLUMN[table.forgetting]]}
            key = tables.cell_name(cell.method, cell.variant, cell.buffer, cell.protocol)
            _put(found, f"{name}.{key}", means, row["n_planned"] - row["n"])
    for result in search.results(plan, runs):
        searched, best = result.cell, result.best
        faa = None if best is None else statistics.mean(best.accuracies)
        missing = sum(len(t.trial.runs) - len(t.accuracies) for t in result.trials)
        key = tables.cell_name(searched.method, None, searched.buffer, searched.protocol)
        _put(found, f"search.{searched.benchmark}.{key}", {"held_out_faa": faa}, missing)
    return found


def _put(found: dict[str, Any], key: str, means: dict[str, Any], missing: int) -> None:
    """Put a cell's values where the parts of `key` lead."""
    for part in key.split("."):
        found = found.setdefault(part, {})
    found |= {name: value for name, value in means.items() if not pd.isna(value)}
    if missing:
        found["missing"] = int(missing)


def write(plan: Plan) -> None:
    """Write a study's metrics from its collected records, as JSON."""
    values = metrics(plan, record.read_collected(plan.study))
    with atomic(metrics_file(plan.study)) as partial:
        partial.write_text(json.dumps(values, indent=2) + "\n")
