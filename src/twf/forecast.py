"""How long what remains of a study takes, by what recorded runs took. No torch here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

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
    `not_measured` has the methods of which no device has a record, by benchmark and width.
    """
    import pandas as pd

    kinds = [(run.benchmark, run.method, run.network.width, run.epochs) for run in runs]
    planned = pd.DataFrame(kinds, columns=[*KEY, "epochs"])
    known = planned.merge(pd.read_csv(files.COSTS), how="left", on=KEY)
    known["hours"] = known["epochs"] * known["seconds"] / 3600
    devices = known.groupby("device").agg(hours=("hours", "sum"), runs=("hours", "size"))
    unknown = known[known["device"].isna()].groupby(["benchmark", "width"])["method"]
    missing = {
        f"{benchmark}, width {width}": sorted(set(methods))
        for (benchmark, width), methods in unknown
    }
    return {"runs": len(kinds), "devices": devices.to_dict("index"), "not_measured": missing}


def show(forecast: dict[str, Any]) -> None:
    """Print a forecast."""
    print(f"{forecast['runs']} runs remain; one after the other, without pretraining:")
    for device, row in forecast["devices"].items():
        print(f"  {row['hours']:8.1f} hours for {row['runs']} of them on {device}")
    for where, methods in forecast["not_measured"].items():
        print(f"  not measured: {where}: {', '.join(methods)}")
    print("by medians of recorded runs (results/costs.csv)")
