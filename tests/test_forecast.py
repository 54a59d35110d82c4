"""How long a study takes, by what recorded runs took."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from twf import files
from twf.forecast import costs, forecast, show
from twf.study import expand


def record(seconds: float, epochs: int, method: str = "er", **changes: object) -> dict[str, object]:
    parameters = {"network": {"width": 8}, "epochs": epochs, "held_out": None}
    row = {"benchmark": "split-target", "method": method, "device": "A", "status": "finished"}
    held_out = {"held_out": changes.pop("held_out", None)}
    text = json.dumps({"parameters": parameters | held_out})
    return row | {"seconds": seconds, "provenance": text} | changes


def test_a_cost_is_the_median_of_an_epochs_time_over_whole_runs() -> None:
    rows = [record(10, 1), record(60, 2), record(80, 4), record(7, 1, device="B")]
    left_out = [record(1, 1, status="diverged"), record(1, 1, held_out=0.1)]
    table = costs(pd.DataFrame([*rows, *left_out]))
    assert table.set_index("device")["seconds"].to_dict() == {"A": 20.0, "B": 7.0}
    assert list(table["runs"]) == [3, 1]


def test_what_remains_is_summed_and_what_nothing_measured_is_named(tiny_inputs, capsys) -> None:
    runs = list(expand(tiny_inputs, "tiny").runs.values())
    files.COSTS.parent.mkdir(exist_ok=True)
    width = runs[0].network.width
    measured = [
        ("split-target", "er", width, "A", 1, 30.0),
        ("split-target", "er", 99, "A", 1, 9.0),
    ]
    columns = ["benchmark", "method", "width", "device", "runs", "seconds"]
    pd.DataFrame(measured, columns=columns).to_csv(files.COSTS, index=False)
    hours = forecast(runs)
    er = [run for run in runs if run.method == "er"]
    assert hours["devices"]["A"]["runs"] == len(er)
    assert hours["devices"]["A"]["hours"] * 3600 == pytest.approx(30 * sum(r.epochs for r in er))
    ((where, kinds),) = hours["not_measured"].items()
    assert where == f"split-target, width {width}"
    assert hours["runs"] == len(runs) and kinds == sorted({r.method for r in runs} - {"er"})
    show(hours)
    assert "twf" in capsys.readouterr().out
