"""The means of a study's cells as DVC's metrics: one small file, for `dvc metrics` and `dvc exp`.

A key is a table's name and a cell's in it, as in the report: `main.split-digits.twf.50.class-il`.
Spreads and numbers of seeds stand in the tables.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from twf.files import atomic, metrics_file
from twf.results import cells, show
from twf.study import Plan


def metrics(plan: Plan, written: pd.DataFrame, trials: pd.DataFrame) -> dict[str, Any]:
    """What each cell's finished runs give, per cent, nested by the parts of its key.

    `faa` and `ff` are the means that the table shows; under `search`, `held_out_faa` is the best
    trial's. What has no value is left out. `missing` is the number of planned runs without one,
    where there are any: a change of such a mean may be a change of its runs.
    """
    found: dict[str, Any] = {}
    for row in show.rows(written):
        ff = row[cells.FORGETTING_COLUMN[plan.tables[row["table"]].forgetting]]
        means = {"faa": row["faa_mean"], "ff": ff}
        _put(found, f"{row['table']}.{row['cell']}", means, row["n_planned"] - row["n"])
    for (benchmark, cell), tried in trials.groupby(["benchmark", "cell"], sort=False):
        means = {"held_out_faa": tried["accuracy_mean"][tried["best"]].max()}
        missing = int((tried["n_planned"] - tried["n"]).sum())
        _put(found, f"search.{benchmark}.{cell}", means, missing)
    return found


def _put(found: dict[str, Any], key: str, means: dict[str, float], missing: int) -> None:
    """Put a cell's values where the parts of `key` lead."""
    for part in key.split("."):
        found = found.setdefault(part, {})
    found |= {name: value for name, value in means.items() if not pd.isna(value)}
    if missing:
        found["missing"] = missing


def write(plan: Plan, written: pd.DataFrame, trials: pd.DataFrame) -> None:
    """Write a study's metrics as JSON, from its tables and trials as they were written."""
    with atomic(metrics_file(plan.study)) as partial:
        text = json.dumps(metrics(plan, written, trials), indent=2)
        partial.write_text(f"{text}\n", encoding="utf-8")
