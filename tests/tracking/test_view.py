"""What is shown of a run follows from its record alone."""

from __future__ import annotations

import json

from twf.study import Run
from twf.study.params import Tracking
from twf.tracking import view


def test_each_study_has_a_project():
    assert view.project(Tracking(), "demo") == "twf-demo"
    assert view.project(Tracking(project="mine"), "paper") == "mine-paper"


def test_an_identifier_follows_from_study_run_and_parameters(row, tiny_run):
    run = tiny_run("er")
    identity = view.identity(row(run))
    assert identity == f"tiny.split-target.er.16.s0.{run.digest[:8]}"
    assert view.identity(row(run, seconds=1.0, status="diverged")) == identity
    assert view.identity(row(tiny_run("er", epochs=3))) != identity


def test_a_group_is_the_seeds_of_a_cell(row, tiny_run):
    groups = {view.about(row(tiny_run("er", seed=s, id=f"cell.s{s}")))["group"] for s in (0, 3, 10)}
    assert groups == {"cell"}


def test_tags_and_kind_of_job(row, tiny_run):
    about = view.about(row(tiny_run("er")))
    assert about["tags"] == ["split-target", "er", "from-origin", "buffer-16"]
    assert about["job_type"] == "train"
    assert view.about(row(tiny_run("joint")))["tags"] == ["split-target", "joint", "from-origin"]
    assert view.about(row(tiny_run("er", held_out=0.1)))["job_type"] == "search"


def test_configurations_of_all_methods_have_the_same_keys(row, tiny_run):
    """And name what a run depends on: parameters, code, data, versions, machine."""
    run = tiny_run("twf")
    twf, joint = (view.about(row(r))["config"] for r in (run, tiny_run("joint")))
    assert twf.keys() == joint.keys()
    assert json.loads(run.parameters).items() <= twf.items()
    assert twf["hyperparameters"]["lambda_fp"] == 0.5
    assert twf["code"]["commit"] == "abc1234"
    assert twf["inputs"]["train_fingerprint"] == "d00d"
    assert (twf["study"], twf["digest"], twf["host"]) == ("tiny", run.digest, "here")
    assert not any("." in key for key in twf), "Weights & Biases reads a dot as nesting"


def test_rows_are_epochs_and_what_each_phase_came_to(row, tiny_run):
    first, second, phase, *_ = view.rows(row(tiny_run("er")))
    losses = {"loss/total": 0.75, "loss/a": 0.5, "loss/b": 0.25}
    assert first == losses | {"phase": 0, "epoch": 0}
    assert second == losses | {"phase": 0, "epoch": 1}
    assert phase == {
        "phase": 0,
        "accuracy/class-il/seen": 90.0,
        "accuracy/class-il/task-0": 90.0,
        "accuracy/class-il/task-1": 30.0,
        "accuracy/task-il/seen": 95.0,
        "accuracy/task-il/task-0": 95.0,
        "accuracy/task-il/task-1": 50.0,
    }


def test_accuracy_seen_is_over_the_tasks_so_far_and_over_all_for_joint(row, tiny_run):
    def seen(run: Run) -> list[float]:
        name = "accuracy/class-il/seen"
        return [values[name] for values in view.rows(row(run)) if name in values]

    assert seen(tiny_run("er")) == [90.0, 75.0]
    assert seen(tiny_run("joint")) == [60.0]


def test_rows_of_a_run_so_far_are_the_first_of_all(row, tiny_run):
    """So that a run can be sent row by row, and again from the start."""
    whole = row(tiny_run("er"), cka=[[1.0], [0.9], [0.8]], nearest_neighbours=[[9.0]] * 3)
    rows = view.rows(whole)
    assert len(rows) == 6
    assert [values["cka/0"] for values in rows if "cka/0" in values] == [0.9, 0.8]
    stages = [(0, 0), (1, 0), (2, 0), (2, 1), (3, 1), (4, 1), (4, 2)]  # epochs, phases so far
    for count, (epochs, phases) in enumerate(stages):
        so_far = whole | {"history": whole["history"][:epochs]}
        for name in ("accuracy_class_il", "accuracy_task_il"):
            so_far[name] = whole[name][:phases]
        for name in ("cka", "nearest_neighbours"):
            so_far[name] = whole[name][: phases + 1]
        assert view.rows(so_far) == rows[:count]


def test_the_summary_has_the_final_metrics(row, tiny_run):
    assert (
        view.summary(row(tiny_run("er"))).items()
        >= {
            "status": "finished",
            "reason": None,
            "seconds": 12.34,
            "faa/class-il": 75.0,
            "ff/class-il": 20.0,
            "ff-paper/class-il": 20.0,
            "learning-accuracy/class-il": 85.0,
            "average-incremental-accuracy/class-il": 82.5,
            "backward-transfer/class-il": -20.0,
            "forward-transfer/class-il": 10.0,
            "faa/task-il": 87.5,
        }.items()
    )
    assert view.summary(row(tiny_run("joint")))["ff/class-il"] is None
    known = row(tiny_run("er"))
    surer = known | {"initial_task_il": [accuracy + 3 for accuracy in known["initial_task_il"]]}
    forward = "forward-transfer/task-il"
    assert view.summary(surer)[forward] == view.summary(known)[forward] - 3


def test_a_diverged_run_has_a_reason_and_no_metrics(row, tiny_run):
    found = view.summary(row(tiny_run("er"), status="diverged", reason="loss is not finite"))
    assert found.keys() == {"status", "reason", "seconds", "peak_memory_mib"}
    assert (found["status"], found["reason"]) == ("diverged", "loss is not finite")
