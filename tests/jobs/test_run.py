"""A whole run from its files to its record."""

import dataclasses
import math
from statistics import fmean
from typing import Any

import pytest
import torch
from support import CPU, execute, plan_of, pretrain

from twf import files
from twf.data import store
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.jobs import run as jobs
from twf.results import record
from twf.study import Run, reading
from twf.study.methods import METHODS
from twf.study.params import Params

pytestmark = pytest.mark.usefixtures("shallow")


def execute_and_read(params: Params, run: Run) -> dict[str, Any]:
    execute(params, run, CPU)
    (row,) = record.read(files.record_file("tiny", run.id)).to_pylist()
    return row


@pytest.mark.parametrize("method", METHODS)
def test_a_run_writes_a_record_that_reads_back(tiny_inputs, tiny_run, method):
    run = tiny_run(method)
    row = execute_and_read(tiny_inputs, run)
    path = files.record_file("tiny", run.id)
    assert record.read(path).schema.equals(record.SCHEMA)
    expected = {"run": run.id, "study": "tiny", "benchmark": "split-target", "source": "origin"}
    expected |= {"method": method, "seed": 0, "digest": run.digest, "reason": None}
    expected |= {"buffer": 16 if METHODS[method].rehearsal else None, "status": "finished"}
    assert row.items() >= expected.items()
    phases = 1 if METHODS[method].at_once else 2
    matrices = torch.tensor([row["accuracy_class_il"], row["accuracy_task_il"]])
    assert matrices.shape == (2, phases, 2) and (matrices >= 0).all() and (matrices <= 100).all()
    epochs = [(entry["phase"], entry["epoch"]) for entry in row["history"]]
    assert epochs == [(phase, epoch) for phase in range(phases) for epoch in range(2)]
    for entry in row["history"]:
        assert entry["loss"] == pytest.approx(sum(value for _, value in entry["terms"]))
        assert entry["seconds"] > 0
    assert row["seconds"] >= sum(entry["seconds"] for entry in row["history"])
    assert row["peak_memory_mib"] > 0 and row["started"].tzinfo is not None
    assert row["device"].endswith(", 1 thread") and row["host"]

    provenance = record.provenance(row)
    parts = ("parameters", "plan", "code", "inputs", "versions", "gpu", "execution", "precision")
    assert provenance.keys() == {*parts, "deterministic"}
    assert provenance["gpu"] is None  # it is a CPU's
    assert provenance["parameters"] == run.parameters
    assert record.plan_of(provenance) == plan_of(tiny_inputs, run)
    assert provenance["code"].keys() == {"version", "commit", "method_hash"}
    assert len(provenance["code"]["method_hash"]) == 64
    tensors = checkpoints.load(files.checkpoint_file("origin"), run.network).tensors
    inputs = {"network_sha256": checkpoints.digest("", tensors)}
    for prefix, name in (("", "target"), ("source_", run.source_data)):
        if name is not None:
            data = store.load(files.data_file(name))
            inputs[f"{prefix}train_fingerprint"] = data.train_fingerprint
            inputs[f"{prefix}test_fingerprint"] = data.test_fingerprint
    assert provenance["inputs"] == inputs
    assert provenance["versions"].keys() == {"python", "torch", "numpy"}
    assert provenance["versions"]["torch"] == torch.__version__


def test_a_run_says_what_it_begins_and_what_came_out(tiny_inputs, tiny_run, capsys):
    row = execute_and_read(tiny_inputs, tiny_run("finetune"))
    printed = capsys.readouterr()
    first, second, *_ = printed.err.splitlines()
    # 22 images a task, in batches of 8
    assert first == f"{row['run']}: begins: 2 tasks, 2 epochs each, about 2 steps an epoch"
    assert second.startswith(f"{row['run']}: 1/4 after ")
    class_il, task_il = (fmean(row[f"accuracy_{name}"][-1]) for name in ("class_il", "task_il"))
    line = f"final average accuracy Class-IL {class_il:.2f} %, Task-IL {task_il:.2f} %\n"
    assert printed.out.endswith(f"{row['run']}.parquet: {line}")


def test_a_diverged_run_is_recorded_as_such(tiny_inputs, tiny_run, capsys):
    row = execute_and_read(tiny_inputs, tiny_run("er", hyperparameters={"lr": 1e30}))
    assert row["status"] == "diverged"
    assert "cross_entropy" in row["reason"] and "epoch 0 of task 0" in row["reason"]
    assert row["accuracy_class_il"] == row["accuracy_task_il"] == []
    (entry,) = row["history"]
    assert not entry["loss"] < float("inf")
    assert f"{row['run']}.parquet: diverged: {row['reason']}\n" in capsys.readouterr().out


def test_a_run_of_a_search_does_not_see_the_test_set(tiny_inputs, tiny_run, monkeypatch):
    run, dataset = tiny_run("er", held_out=0.25), store.load(files.data_file("target"))
    row = execute_and_read(tiny_inputs, run)
    images, labels = 255 - dataset.test_images, dataset.test_labels.flip(0)
    other = dataclasses.replace(dataset, test_images=images, test_labels=labels)
    monkeypatch.setattr(store, "load", lambda _: other)
    again = execute_and_read(tiny_inputs, run)
    assert again["accuracy_class_il"] == row["accuracy_class_il"]
    assert again["history"][-1]["loss"] == row["history"][-1]["loss"]


def test_a_batch_of_all_tasks_images_is_enough_for_joint(tiny_inputs, tiny_run):
    run = tiny_run("joint", batch_size=30)  # a task has 22 images
    assert execute_and_read(tiny_inputs, run)["status"] == "finished"


LARGE = {"hyperparameters": {"batch_size": 4000}}


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("er", {"held_out": 0.02}, "split-target.er.16.s0: .*held_out"),
        ("co2l", LARGE, "22 training images of a task do not fill a batch of 4000.*batch_size"),
        ("icarl", {"buffer": 3}, "iCaRL keeps an image of each of 4 classes.*at least 4 in"),
        ("co2l", {"buffer": 3}, "CO2L keeps an image of each of 4 classes.*at least 4 in"),
    ],
)
def test_what_cannot_be_trained_is_refused_before(tiny_inputs, tiny_run, method, changes, message):
    with pytest.raises(UserError, match=message):
        execute(tiny_inputs, tiny_run(method, **changes), CPU)


def test_the_way_of_execution_reaches_the_steps(tiny_inputs, tiny_run):
    with pytest.raises(UserError, match="on a GPU"):
        execute(tiny_inputs, tiny_run("er"), CPU, execution="captured")
    with pytest.raises(UserError, match="on a GPU"):
        pretrain(tiny_inputs, "origin", CPU, math.inf, "captured")


def test_a_run_whose_code_is_not_the_plans_writes_nothing(tiny_inputs, tiny_values, tiny_run):
    """It was edited since the plan was written."""
    tiny_values["studies"]["tiny"]["follow_code"] = True
    run = tiny_run("er")
    plan = plan_of(reading.check(tiny_values), run)
    tracking = tiny_inputs.tracking
    with pytest.raises(UserError, match="code of er was changed"):
        jobs.execute(run, plan | {"code": "0" * 64}, tracking, CPU)
    assert not files.record_file("tiny", run.id).exists()
    jobs.execute(run, plan, tracking, CPU)
    (row,) = record.read(files.record_file("tiny", run.id)).to_pylist()
    assert record.plan_of(record.provenance(row), True) == plan
