"""A whole run from its files to its record."""

from __future__ import annotations

import json
import re
from statistics import fmean
from typing import Any

import pytest
import torch
from made import execute, plan_of

from twf import files
from twf.data import store
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.jobs import run as jobs
from twf.results import record
from twf.study import Run, reading
from twf.study.methods import METHODS
from twf.study.params import Params
from twf.study.products import made_data

CPU = torch.device("cpu")

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

    assert (
        row.items()
        >= {
            "run": run.id,
            "study": "tiny",
            "benchmark": "split-target",
            "source": "origin",
            "method": method,
            "seed": 0,
            "buffer": 16 if METHODS[method].rehearsal else None,
            "status": "finished",
            "reason": None,
            "digest": run.digest,
        }.items()
    )
    phases = 1 if METHODS[method].at_once else 2
    for name in ("accuracy_class_il", "accuracy_task_il"):
        assert [len(accuracies) for accuracies in row[name]] == [2] * phases
        assert all(0 <= value <= 100 for accuracies in row[name] for value in accuracies)
    for class_il, task_il in zip(row["accuracy_class_il"], row["accuracy_task_il"], strict=True):
        assert all(t >= c for c, t in zip(class_il, task_il, strict=True))
    epochs = [(entry["phase"], entry["epoch"]) for entry in row["history"]]
    assert epochs == [(phase, epoch) for phase in range(phases) for epoch in range(2)]
    for entry in row["history"]:
        assert entry["loss"] == pytest.approx(sum(value for _, value in entry["terms"]))
        assert entry["seconds"] > 0
    assert row["seconds"] >= sum(entry["seconds"] for entry in row["history"])
    assert row["peak_memory_mib"] > 0
    assert row["started"].tzinfo is not None
    assert row["device"].endswith(", 1 thread") and row["host"]

    found = record.provenance(row)
    parts = ("parameters", "plan", "code", "inputs", "versions", "gpu", "execution", "precision")
    assert found.keys() == {*parts, "deterministic"}
    assert found["gpu"] is None  # it is a CPU's
    assert found["parameters"] == json.loads(run.parameters)
    assert record.brief(path)["plan"] == plan_of(tiny_inputs, run)
    assert found["code"].keys() == {"version", "commit", "method_hash"}
    assert len(found["code"]["method_hash"]) == 64
    tensors = checkpoints.load(files.checkpoint_file("origin"), tiny_run(method).network).tensors
    assert found["inputs"]["network_sha256"] == checkpoints.digest("", tensors)
    assert len(found["inputs"]["train_fingerprint"]) == 64
    assert found["inputs"]["train_fingerprint"] != found["inputs"]["test_fingerprint"]
    assert found["versions"].keys() == {"python", "torch", "numpy"}
    assert found["versions"]["torch"] == torch.__version__


def test_a_finished_run_says_what_came_out(tiny_inputs, tiny_run, capsys):
    row = execute_and_read(tiny_inputs, tiny_run("finetune"))
    faa = [fmean(row[f"accuracy_{protocol}"][-1]) for protocol in ("class_il", "task_il")]
    said = f"{row['run']}.parquet: final average accuracy Class-IL {faa[0]:.2f} %, Task-IL "
    assert f"{said}{faa[1]:.2f} %\n" in capsys.readouterr().out


def test_a_run_says_what_it_begins_before_its_first_epoch_ends(tiny_inputs, tiny_run, capsys):
    row = execute_and_read(tiny_inputs, tiny_run("finetune"))
    first, second, *_ = capsys.readouterr().err.splitlines()
    # 22 images a task, in batches of 8
    assert first == f"{row['run']}: begins: 2 tasks, 2 epochs each, about 2 steps an epoch"
    assert second.startswith(f"{row['run']}: 1/4 after ")


def test_where_an_epoch_takes_long_its_first_steps_give_an_estimate(
    tiny_inputs, tiny_run, capsys, monkeypatch
):
    monkeypatch.setattr("twf.progress.LINE_EVERY", 0.0)
    row = execute_and_read(tiny_inputs, tiny_run("finetune"))
    _, second, *others = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        rf"{row['run']}: 0/4 after \d+ s, and 100% of the next: about \d+ s left", second
    )
    assert not [line for line in others if "left" in line]


def test_a_diverged_run_is_recorded_as_such(tiny_inputs, tiny_run, capsys):
    row = execute_and_read(tiny_inputs, tiny_run("er", hyperparameters={"lr": 1e30}))
    assert row["status"] == "diverged"
    assert "cross_entropy" in row["reason"] and "epoch 0 of task 0" in row["reason"]
    assert row["accuracy_class_il"] == row["accuracy_task_il"] == []
    assert len(row["history"]) == 1
    assert not row["history"][0]["loss"] < float("inf")
    assert f"{row['run']}.parquet: diverged: {row['reason']}\n" in capsys.readouterr().out


def test_collected_records_are_a_row_each_ordered_by_run(tiny_inputs, tiny_run):
    runs = [tiny_run(method) for method in ("joint", "finetune")]
    rows = {run.id: execute_and_read(tiny_inputs, run) for run in runs}
    output = files.runs_file("tiny")
    record.collect([files.record_file("tiny", run.id) for run in runs], output)
    collected = record.read(output)
    assert collected["run"].to_pylist() == sorted(rows)
    assert {row["run"]: row for row in collected.to_pylist()} == rows


def test_a_record_with_a_column_too_many_or_too_few_is_not_written(tmp_path):
    row = dict.fromkeys(record.SCHEMA.names)
    for wrong in (row | {"more": 1}, {k: v for k, v in row.items() if k != "seed"}):
        with pytest.raises(ValueError, match="more|seed"):
            record.write(tmp_path / "x.parquet", wrong)
    assert list(tmp_path.iterdir()) == []


def test_runs_start_from_their_sources_checkpoint(tiny_inputs, tiny_run):
    """Another checkpoint under the same name: another result, and another provenance."""
    run = tiny_run("finetune")
    before = execute_and_read(tiny_inputs, run)
    path = files.checkpoint_file("origin")
    checkpoint = checkpoints.load(path, run.network)
    network = checkpoint.network()
    with torch.no_grad():
        network.conv1.weight.mul_(-1)
    checkpoints.save(path, network, checkpoint.about)
    after = execute_and_read(tiny_inputs, run)
    assert before["history"][0]["loss"] != after["history"][0]["loss"]
    inputs = [record.provenance(row)["inputs"]["network_sha256"] for row in (before, after)]
    assert inputs[0] != inputs[1]


def test_icarl_without_room_for_each_class_is_refused_before_it_trains(tiny_inputs, tiny_run):
    with pytest.raises(UserError, match="an image of each of 4 classes.*has room for 3"):
        execute_and_read(tiny_inputs, tiny_run("icarl", buffer=3))


def test_a_share_of_nearly_all_leaves_one_place_to_replay_from(tiny_inputs, tiny_run):
    run = tiny_run("derpp-pretraining", hyperparameters={"share": 0.98})
    terms = dict(execute_and_read(tiny_inputs, run)["history"][-1]["terms"])
    assert "replay_labels" in terms


def test_a_record_says_which_images_of_the_source_were_replayed(tiny_inputs, tiny_run):
    run = tiny_run("derpp-pretraining")
    made_from = record.provenance(execute_and_read(tiny_inputs, run))["inputs"]
    source = store.load(files.data_file(run.source_data))
    assert made_from["source_train_fingerprint"] == source.train_fingerprint


def test_a_run_of_a_search_does_not_see_the_test_set(tiny_inputs, tiny_run):
    run = tiny_run("er", held_out=0.25)
    row = execute_and_read(tiny_inputs, run)
    # 11 of 44 images are held out; a task's accuracy is of those among them that are its own
    path = files.data_file("target")
    dataset = store.load(path)
    arrays = store.DataArrays(
        store.Split(dataset.train_images.numpy().copy(), dataset.train_labels.numpy().copy()),
        store.Split(255 - dataset.test_images.numpy(), dataset.test_labels.numpy()[::-1].copy()),
        dataset.classes,
    )
    store.save(path, "target", arrays, made_data("target"))
    again = execute_and_read(tiny_inputs, run)
    assert again["accuracy_class_il"] == row["accuracy_class_il"]
    assert again["history"][-1]["loss"] == row["history"][-1]["loss"]


def test_too_few_images_to_evaluate_a_task_on_are_refused(tiny_inputs, tiny_run):
    run = tiny_run("er", held_out=0.02)
    with pytest.raises(UserError, match="split-target.er.16.s0: .* task"):
        execute(tiny_inputs, run, CPU)


@pytest.mark.parametrize(
    ("method", "changes", "key"),
    [
        ("er", {"batch_size": 4000}, "batch_size"),
        ("co2l", {"hyperparameters": {"batch_size": 4000}}, "methods.co2l.batch_size"),
    ],
)
def test_a_task_that_does_not_fill_a_batch_is_refused(tiny_inputs, tiny_run, method, changes, key):
    run = tiny_run(method, **changes)
    with pytest.raises(
        UserError, match=rf"fill a batch of 4000; lower benchmarks.split-target.{key}"
    ):
        execute(tiny_inputs, run, CPU)


@pytest.mark.parametrize(
    ("method", "why"),
    [("er", "is probed"), ("derpp-pretraining", "replays the source's images")],
)
def test_images_that_are_missing_are_named_with_what_a_run_needs_them_for(
    tiny_inputs, tiny_run, method, why
):
    run = tiny_run(method)
    if method == "er":
        run = run.model_copy(update={"probes": True, "source_data": "origin"})
    files.data_file("origin").unlink()
    with pytest.raises(UserError, match=f"no data/origin.safetensors: .*{why}.*prepare origin"):
        execute(tiny_inputs, run, CPU)


def test_a_run_from_what_is_not_as_planned_is_refused(tiny_inputs, tiny_values, tiny_run):
    """The message names what differs, and what makes the file anew."""
    tiny_values["sources"]["origin"]["pretraining"]["epochs"] = 3
    with pytest.raises(UserError, match="origin.*epochs: 1 -> 3.*`twf pretrain train origin`"):
        execute(reading.check(tiny_values), tiny_run("er"), CPU)


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
    assert record.brief(files.record_file("tiny", run.id))["plan"] == plan
