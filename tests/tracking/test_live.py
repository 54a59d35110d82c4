"""A run is followed while it trains, shown as its record has it, and never failed by tracking."""

import json
import os
import re
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from unittest.mock import call as called

import pytest
import torch
import wandb
from support import KEYS, execute, files_with_keys

from twf import files, study
from twf.jobs.resume import Stopped
from twf.results import record
from twf.study import Run, reading
from twf.study.params import Tracking
from twf.tracking.live import about, rows, summary

Row = dict[str, Any]


@pytest.fixture
def tracked(
    shallow: None, tiny_inputs: Any, tiny_values: dict[str, Any], no_key: Path
) -> Callable[[str], Row]:
    """`tracked(method)` does the miniature run, offline; its record."""

    def do(method: str) -> Row:
        loaded = reading.check(tiny_values | {"tracking": {"mode": "offline"}})
        (run,) = [r for r in study.expand(loaded, "tiny").runs.values() if r.method == method]
        execute(loaded, run, torch.device("cpu"))
        return record.read(files.record_file(run.study, run.id)).to_pylist()[0]

    return do


def row(run: Run, **columns: Any) -> Row:
    """What is shown of the record of a run of two tasks; keywords replace columns."""
    phases = 1 if run.method == "joint" else 2
    epoch = {"seconds": 1.0, "loss": 0.75, "terms": {"a": 0.5, "b": 0.25}}
    return {
        **run.model_dump(include={"study", "method", "seed"}),
        "run": run.id,
        "digest": run.digest,
        "device": "a CPU",
        "host": "here",
        "started": datetime(2026, 1, 1, tzinfo=UTC),
        "provenance": json.dumps({"parameters": run.parameters, "code": {"commit": "abc1234"}}),
        "status": "finished",
        "reason": None,
        "accuracy_class_il": [[90.0, 30.0], [70.0, 80.0]][:phases],
        "accuracy_task_il": [[95.0, 50.0], [85.0, 90.0]][:phases],
        **{name: [] for name in record.PROBED},
        "history": [epoch | {"phase": p, "epoch": e} for p in range(phases) for e in range(2)],
        "seconds": 12.34,
        **columns,
    }


def test_an_offline_run_is_kept_under_our_own_identifier(tracked, monkeypatch):
    """In a sweep too, in a folder that may lie at home, and without keys."""
    variables = {"WANDB_SWEEP_ID": "s1", "WANDB_RUN_ID": "abc", "WANDB_DIR": "~/runs"}
    for name, value in (KEYS | variables).items():
        monkeypatch.setenv(name, value)
    described = about(tracked("derpp"), Tracking())
    wandb.teardown()  # another process writes, and is done when it has ended
    (folder,) = Path("~/runs/wandb").expanduser().glob("offline-run-*")
    assert folder.name.endswith(described["id"])
    assert files_with_keys(Path("results")) + files_with_keys(folder.parent) == []
    content = (folder / f"run-{described['id']}.wandb").read_bytes()
    names = [described[key] for key in ("project", "name", "group")]
    for part in (*names, "accuracy/class-il/seen", "faa/task-il", described["config"]["host"]):
        assert part.encode() in content, part


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch, no_key: Path, tmp_path: Path) -> Mock:
    """In place of `wandb.init`; its `return_value` is a run that keeps what it gets."""
    monkeypatch.chdir(tmp_path)
    init = Mock(return_value=Mock(spec=["define_metric", "log", "summary", "finish"]))
    monkeypatch.setattr("wandb.init", init)
    return init


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        ("return_value.log", RuntimeError("no disk"), "tracking stopped: .*no disk"),
        ("return_value.finish", RuntimeError("no disk"), "tracking stopped: .*no disk"),
        ("", PermissionError(), "off for this run: PermissionError"),  # as of a refused key
    ],
)
def test_a_failing_tracker_warns_once_and_the_run_goes_on(
    init, tracked, capsys, call, error, named
):
    failing = attrgetter(call)(init) if call else init
    failing.side_effect = error
    assert tracked("finetune")["status"] == "finished"
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert re.search(named, warning)
    failing.assert_called_once()  # nothing is sent after a failure


def test_a_resumed_run_is_sent_again_from_its_first_row(init, tracked):
    """What was sent before the interruption is the beginning of it, so nothing is there twice."""

    def interrupt(_: Any, step: int, commit: bool) -> None:
        if step == 3:  # in the second phase
            os.kill(os.getpid(), signal.SIGTERM)

    sent = init.return_value
    sent.log.side_effect = interrupt
    with pytest.raises(Stopped):
        tracked("er")
    assert sent.finish.mock_calls == [called(exit_code=1)]
    first = sent.log.mock_calls
    sent.reset_mock(side_effect=True)
    made = tracked("er")
    again = sent.log.mock_calls
    assert again == [called(values, step=i, commit=True) for i, values in enumerate(rows(made))]
    assert first == again[:4] and len(again) == 6
    assert init.call_args.kwargs.items() >= about(made, Tracking()).items()
    assert sent.summary.update.mock_calls == [called(summary(made))]


def test_a_run_has_its_studys_project_its_cells_group_and_an_identifier_by_its_parameters(
    tiny_run,
):
    run = tiny_run("er", seed=10, id="cell.s10")
    described = about(row(run), Tracking(project="mine", entity="lab"))
    assert [described[key] for key in ("project", "entity")] == ["mine-tiny", "lab"]
    assert [described[key] for key in ("name", "group")] == [run.id, "cell"]
    assert described["id"] == f"tiny.cell.s10.{run.digest[:8]}"
    assert about(row(run, seconds=1.0), Tracking())["id"] == described["id"]
    config = described["config"]
    assert config.items() >= run.parameters.items()
    assert config["code"]["commit"] == "abc1234" and config["study"] == "tiny"
    assert not any("." in key for key in config), "Weights & Biases reads a dot as nesting"


def test_rows_are_epochs_and_what_each_phase_came_to(tiny_run):
    """Accuracy seen is over the tasks so far, and over all for Joint."""
    probed = row(tiny_run("er"), cka=[[1.0], [0.9], [0.8]])
    assert [values["cka/0"] for values in rows(probed) if "cka/0" in values] == [0.9, 0.8]
    first, second, phase, *_, last = rows(row(tiny_run("er")))
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
    assert rows(row(tiny_run("joint")))[-1]["accuracy/class-il/seen"] == 60.0


def test_the_summary_is_final_accuracy_and_forgetting_or_why_there_are_none(tiny_run):
    outcome = {"status": "finished", "reason": None, "seconds": 12.34}
    outcome |= {"faa/class-il": 75.0, "ff/class-il": 20.0, "faa/task-il": 87.5, "ff/task-il": 10.0}
    assert summary(row(tiny_run("er"))) == outcome
    diverged = {"status": "diverged", "reason": "loss is not finite"}
    assert summary(row(tiny_run("er"), **diverged)) == diverged | {"seconds": 12.34}
