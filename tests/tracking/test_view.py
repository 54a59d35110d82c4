"""What is shown of a run follows from its record alone."""

from __future__ import annotations

from twf.study.params import Tracking
from twf.tracking import live as view


def test_a_run_has_its_studys_project_its_cells_group_and_an_identifier_by_its_parameters(
    row, tiny_run
):
    run = tiny_run("er", seed=10, id="cell.s10")
    about = view.about(row(run), Tracking(project="mine", entity="lab"))
    assert (about["project"], about["entity"], about["name"]) == ("mine-tiny", "lab", run.id)
    assert about["id"] == f"tiny.cell.s10.{run.digest[:8]}" and about["group"] == "cell"
    assert view.about(row(run, seconds=1.0, status="diverged"), Tracking())["id"] == about["id"]
    assert view.about(row(tiny_run("er", epochs=3)), Tracking())["id"] != about["id"]
    config = about["config"]
    assert config.items() >= run.values.items()
    assert config["code"]["commit"] == "abc1234" and config["study"] == "tiny"
    assert not any("." in key for key in config), "Weights & Biases reads a dot as nesting"


def test_rows_are_epochs_and_what_each_phase_came_to(row, tiny_run):
    """Accuracy seen is over the tasks so far, and over all for Joint."""
    first, second, phase, *_, last = view.rows(row(tiny_run("er")))
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
    assert last["accuracy/class-il/seen"] == 75.0
    assert view.rows(row(tiny_run("joint")))[-1]["accuracy/class-il/seen"] == 60.0


def test_rows_of_a_run_so_far_are_the_first_of_all(row, tiny_run):
    """So that a run can be sent row by row, and again from the start."""
    whole = row(tiny_run("er"), cka=[[1.0], [0.9], [0.8]])
    rows = view.rows(whole)
    assert [values["cka/0"] for values in rows if "cka/0" in values] == [0.9, 0.8]
    stages = [(0, 0), (1, 0), (2, 0), (2, 1), (3, 1), (4, 1), (4, 2)]  # epochs, phases so far
    for count, (epochs, phases) in enumerate(stages):
        so_far = whole | {"history": whole["history"][:epochs], "cka": whole["cka"][: phases + 1]}
        for name in ("accuracy_class_il", "accuracy_task_il"):
            so_far[name] = whole[name][:phases]
        assert view.rows(so_far) == rows[:count]


def test_the_summary_is_final_accuracy_and_forgetting_or_why_there_are_none(row, tiny_run):
    outcome = {"status": "finished", "reason": None, "seconds": 12.34}
    outcome |= {"faa/class-il": 75.0, "ff/class-il": 20.0, "faa/task-il": 87.5, "ff/task-il": 10.0}
    assert view.summary(row(tiny_run("er"))) == outcome
    assert view.summary(row(tiny_run("joint")))["ff/class-il"] is None
    diverged = {"status": "diverged", "reason": "loss is not finite"}
    assert view.summary(row(tiny_run("er"), **diverged)) == diverged | {"seconds": 12.34}
