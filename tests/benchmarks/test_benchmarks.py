"""The benchmarks at their smallest: what rows say, not how many seconds."""

import json
import multiprocessing

import pandas as pd
import pytest
from benchmarks import __main__ as command
from benchmarks import hours, reference, steps
from benchmarks.shapes import planned
from support import CPU, PROJECT

from twf import files
from twf.errors import UserError
from twf.study import reading
from twf.study.methods import METHODS
from twf.study.params import Params

pytestmark = pytest.mark.usefixtures("shallow")


@pytest.fixture
def params(tiny_values) -> Params:
    return reading.check(tiny_values)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_step_of_its_second_task(params, name):
    steps.second_task_step(params, planned(params, "split-target", name), "plain", CPU)()


def test_a_ratio_is_the_quotient_of_its_parts(params, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(reference, "second_task_step", lambda *_: lambda: calls.append(1))
    run = planned(params, "split-target", "er")
    theirs, ours = steps.measure(params, run, ["plain"], "fp32", tmp_path, CPU, calls=2, repeats=2)
    assert (theirs["execution"], ours["execution"]) == ("published code", "plain")
    assert ours["times_reference"] == theirs["milliseconds"] / ours["milliseconds"]
    assert len(calls) == 2 + 2 * 2, "two calls before those that are timed"


def test_jobs_that_share_a_device_are_counted_together(params, monkeypatch):
    fork = multiprocessing.get_context("fork")  # which need not import torch again
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: fork)
    run = planned(params, "split-target", "twf")
    (pair,) = steps.measure_sharing(params, run, "plain", "bf16", [2], CPU, seconds=0.05)
    assert pair["images_per_second"] > 0
    monkeypatch.setattr(steps, "_together", lambda *words: {1: 8.0, 2: 12.0}[words[3]])
    rows = steps.measure_sharing(params, run, "plain", "bf16", [1, 2], CPU)
    assert [(row["jobs"], row["times_alone"]) for row in rows] == [(1, 1.0), (2, 1.5)]


def test_the_command_keeps_what_it_measured_and_where_though_the_next_fails(
    tiny_project, monkeypatch
):
    monkeypatch.setattr(command, "RESULTS", tiny_project / "kept")
    with pytest.raises(UserError, match="no study of params.yaml has a run of nothing"):
        command.main(["steps"], ["split-target"], ["er", "nothing"], calls=1, repeats=1)
    kept = json.loads((tiny_project / "kept" / "latest.json").read_text())
    assert kept.keys() == {"device", "gpu", "versions", "commit", "date", "rows"}
    (row,) = kept["rows"]
    said = {"measurement": "training step", "benchmark": "split-target", "method": "er"}
    assert row.items() >= (said | {"execution": "plain", "images": 8, "threads": 1}).items()
    assert row["images_per_second"] == pytest.approx(8 / row["milliseconds"] * 1000)
    assert "times_reference" not in row


def test_a_step_in_company_is_counted_while_all_are_at_work():
    """Two runs on one card: the first ends after 2 of its epochs, when the other has done 1."""
    epoch = {"seconds": 10.0}
    records = pd.DataFrame(
        {"seconds": [20.0, 30.0], "history": [[epoch] * 2, [{"seconds": 20.0}, epoch]]}
    )
    steps = hours.STEPS / hours.TASKS
    assert list(hours.in_company(records)) == pytest.approx([5e3 / steps, 10e3 / steps])


def record(seconds: float, epochs: int, held_out: float | None = None, **changes: str) -> dict:
    parameters = {"network": {"width": 8}, "epochs": epochs, "held_out": held_out}
    row = {"benchmark": "split-target", "method": "er", "device": "A", "status": "finished"}
    provenance = json.dumps({"parameters": parameters | {"hyperparameters": {}}})
    return row | {"seconds": seconds, "provenance": provenance} | changes


def test_a_cost_is_the_median_of_an_epochs_time_over_whole_runs() -> None:
    rows = [record(10, 1), record(60, 2), record(80, 4), record(7, 1, device="B")]
    left_out = [record(1, 1, status="diverged"), record(1, 1, held_out=0.1)]
    table = hours.costs(pd.DataFrame([*rows, *left_out]))
    assert table.set_index("device")["seconds"].to_dict() == {"A": 20.0, "B": 7.0}
    assert list(table["runs"]) == [3, 1]


def test_costs_in_git_are_those_of_the_records():
    expected = hours.costs(hours.records(PROJECT / hours.EVIDENCE))
    pd.testing.assert_frame_equal(pd.read_csv(PROJECT / files.COSTS), expected, check_dtype=False)
