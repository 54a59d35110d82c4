"""How long a study takes, by what recorded runs took."""

import json

import pandas as pd

from twf import files
from twf.forecast import costs, lines
from twf.study import expand


def record(
    seconds: float,
    epochs: int,
    held_out: float | None = None,
    without: bool = False,
    **changes: str,
) -> dict:
    parameters = {
        **{"network": {"width": 8}, "epochs": epochs, "held_out": held_out},
        "hyperparameters": {"lambda_fp": 0.0 if without else 1.0},
    }
    row = {"benchmark": "split-target", "method": "er", "device": "A", "status": "finished"}
    provenance = json.dumps({"parameters": parameters})
    return row | {"seconds": seconds, "provenance": provenance} | changes


def test_a_cost_is_the_median_of_an_epochs_time_over_whole_runs() -> None:
    rows = [record(10, 1), record(60, 2), record(80, 4), record(7, 1, device="B")]
    left_out = [record(1, 1, status="diverged"), record(1, 1, held_out=0.1)]
    table = costs(pd.DataFrame([*rows, *left_out]))
    assert table.set_index("device")["seconds"].to_dict() == {"A": 20.0, "B": 7.0}
    assert list(table["runs"]) == [3, 1]


def test_twf_without_propagation_is_a_kind_of_its_own() -> None:
    rows = [record(10, 1, method="twf"), record(4, 1, without=True, method="twf")]
    table = costs(pd.DataFrame(rows)).set_index("method")["seconds"]
    assert table.to_dict() == {"twf": 10.0, "twf without propagation": 4.0}


def test_what_remains_is_summed_and_what_nothing_measured_is_named(tiny_inputs) -> None:
    runs = list(expand(tiny_inputs, "tiny").runs.values())
    er = [run for run in runs if run.method == "er"]
    files.COSTS.parent.mkdir(exist_ok=True)
    files.COSTS.write_text(
        "benchmark,method,width,device,runs,seconds\n"
        f"split-target,er,{er[0].network.width},A,1,3600.0\nsplit-target,er,99,A,1,9.0\n"
    )
    first, of_a, missing, _ = lines(runs)
    assert first.startswith(f"{len(runs)} runs remain")
    hours = float(sum(run.epochs for run in er))
    assert of_a.strip() == f"{hours} hours for {len(er)} of them on A"
    others = ", ".join(sorted({run.method for run in runs} - {"er"}))
    assert missing.strip() == f"not measured: split-target, width {er[0].network.width}: {others}"
