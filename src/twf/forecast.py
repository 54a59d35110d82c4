"""How long what remains of a study takes, by what recorded runs took. No torch here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from twf import files
from twf.study import Run

if TYPE_CHECKING:
    import pandas as pd

KEY = ["benchmark", "method", "width"]  # runs that are alike in these are taken to cost the same


def costs(records: pd.DataFrame) -> pd.DataFrame:
    """A row for each kind of run and device: `KEY`, `device`, `runs`, `seconds`.

    `records` have the columns of `twf.results.record.SCHEMA`. `seconds` is the median over runs of
    the time of one epoch of all tasks, evaluation included. Trials with held-out images are left
    out.
    """
    parameters = records["provenance"].map(lambda text: json.loads(text)["parameters"])
    epochs = parameters.map(lambda values: values["epochs"])
    rows = records[["benchmark", "method", "device"]].assign(
        width=parameters.map(lambda values: values["network"]["width"]),
        seconds=records["seconds"] / epochs,
    )
    whole = (records["status"] == "finished") & parameters.map(lambda v: v["held_out"] is None)
    grouped = rows[whole].groupby([*KEY, "device"])["seconds"]
    return grouped.agg(runs="size", seconds="median").round(2).reset_index()


def forecast(runs: Iterable[Run]) -> dict[str, Any]:
    """Hours of runs one after the other, per device of `results/costs.csv`; plain values.

    `devices` has for each device the `hours` of those `runs` whose kind was recorded there.
    `not_measured` counts the runs of which no device has a record, by benchmark, width and method.
    """
    import pandas as pd

    count: Counter[tuple[str, str, int]] = Counter()
    epochs: Counter[tuple[str, str, int]] = Counter()
    for run in runs:
        kind = (run.benchmark, run.method, run.network.width)
        count[kind] += 1
        epochs[kind] += run.epochs
    measured = pd.read_csv(files.COSTS).set_index("device")
    devices = {}
    for device in measured.index.unique():
        seconds = measured.loc[[device]].set_index(KEY)["seconds"].to_dict()
        both = [kind for kind in count if kind in seconds]
        devices[device] = {
            "hours": sum(epochs[kind] * seconds[kind] for kind in both) / 3600,
            "runs": sum(count[kind] for kind in both),
        }
    known = set(measured[KEY].itertuples(index=False, name=None))
    missing: dict[str, dict[str, int]] = {}
    for benchmark, method, width in count.keys() - known:
        kinds = missing.setdefault(f"{benchmark}, width {width}", {})
        kinds[method] = count[benchmark, method, width]
    return {"runs": count.total(), "devices": devices, "not_measured": missing}


def show(forecast: dict[str, Any]) -> None:
    """Print a forecast."""
    console = Console()
    table = Table(title=f"{forecast['runs']} runs remain; one after the other, they take")
    for column in ("on", "hours", "for so many of them"):
        table.add_column(column)
    for device, row in forecast["devices"].items():
        if row["runs"]:
            table.add_row(device, f"{row['hours']:.1f}", str(row["runs"]))
    if table.rows:
        console.print(table)
    for where, kinds in sorted(forecast["not_measured"].items()):
        console.print(f"not measured: {where}: {', '.join(sorted(kinds))}")
    console.print("By medians of recorded runs (results/costs.csv); pretraining is not counted.")
