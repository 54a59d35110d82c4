"""The means of a study's cells as DVC's metrics: one small file, for `dvc metrics` and `dvc exp`.

A key is a table's name and a cell's in it, as in the report: `main.split-digits.twf.50.class-il`.
Spreads and numbers of seeds stand in the tables.
"""

from __future__ import annotations

import json
from typing import Any

from twf.files import atomic, metrics_file
from twf.results import search, statistics, tables
from twf.results.runs import Runs


def metrics(runs: Runs) -> dict[str, Any]:
    """What each cell's finished runs give, per cent, nested by the parts of its key.

    `faa` and `ff` are the means that the table shows; under `search`, `held_out_faa` is the best
    trial's. What has no value is left out. `missing` is the number of planned runs without one,
    where there are any: a change of such a mean may be a change of its runs.
    """
    found: dict[str, Any] = {}
    for name, table in runs.plan.tables.items():
        for cell, row in zip(table.cells, tables.cells(runs, table), strict=True):
            means = {"faa": row["faa_mean"], "ff": row[tables.FORGETTING_COLUMN[table.forgetting]]}
            _put(found, f"{name}.{tables.cell_name(cell)}", means, row["n_planned"] - row["n"])
    for result in search.results(runs):
        faa = None if result.best is None else statistics.mean(result.best.accuracies)
        missing = sum(len(t.trial.runs) - len(t.accuracies) for t in result.trials)
        key = f"search.{result.cell.benchmark}.{tables.cell_name(result.cell)}"
        _put(found, key, {"held_out_faa": faa}, missing)
    return found


def _put(found: dict[str, Any], key: str, means: dict[str, float | None], missing: int) -> None:
    """Put a cell's values where the parts of `key` lead."""
    for part in key.split("."):
        found = found.setdefault(part, {})
    found |= {name: value for name, value in means.items() if value is not None}
    if missing:
        found["missing"] = missing


def write(runs: Runs) -> None:
    """Write a study's metrics from its collected records, as JSON."""
    with atomic(metrics_file(runs.plan.study)) as partial:
        partial.write_text(json.dumps(metrics(runs), indent=2) + "\n", encoding="utf-8")
