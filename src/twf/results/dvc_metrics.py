"""A study's main numbers as DVC's metrics: one small file, for `dvc metrics` and `dvc exp`.

A key is a benchmark and a cell in its table: `split-digits.twf.50.class-il`. The other tables, the
spreads and the numbers of seeds stand in `tables/`.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from twf.files import atomic, metrics_file
from twf.results import show
from twf.study import Plan


def metrics(plan: Plan, written: pd.DataFrame, trials: pd.DataFrame) -> dict[str, Any]:
    """Mean final average accuracy in per cent, nested by the parts of its key.

    Of the first experiment that has tables, under its first protocol; where the study has no table,
    of each search's best trial on held-out images. A cell without a value is left out. `missing`,
    beside it, is the number of planned runs that it lacks: a change of such a mean may be a change
    of its runs.
    """
    nested: dict[str, Any] = {}
    first = next((table.experiment for table in plan.tables.values()), None)
    for row in show.rows(written):
        table = plan.tables[row["table"]]
        if table.experiment == first and row["protocol"] == table.protocols[0]:
            key = f"{table.benchmark}.{row['cell']}"
            _put(nested, key, row["faa_mean"], row["n_planned"] - row["n"])
    if first is None:
        for (benchmark, cell), tried in trials.groupby(["benchmark", "cell"], sort=False):
            best = tried["accuracy_mean"][tried["best"]].max()
            missing = int((tried["n_planned"] - tried["n"]).sum())
            _put(nested, f"search.{benchmark}.{cell}", best, missing)
    return nested


def _put(nested: dict[str, Any], key: str, mean: float, missing: int) -> None:
    """Put a cell's mean where the parts of `key` lead."""
    *path, protocol = key.split(".")
    for part in path:
        nested = nested.setdefault(part, {})
    if not pd.isna(mean):
        nested[protocol] = round(mean, 2)
    if missing:
        nested["missing"] = missing


def write(plan: Plan, written: pd.DataFrame, trials: pd.DataFrame) -> None:
    """Write a study's metrics as JSON, from its tables and trials as they were written."""
    with atomic(metrics_file(plan.study)) as partial:
        text = json.dumps(metrics(plan, written, trials), indent=2)
        partial.write_text(f"{text}\n", encoding="utf-8")
