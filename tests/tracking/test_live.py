"""A run is followed as a key and the user ask, as its record has it, and never failed by that."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
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
from twf.errors import UserError
from twf.jobs.resume import Stopped
from twf.results import record
from twf.study import Run, reading
from twf.study.params import Tracking
from twf.tracking import live
from twf.tracking.live import SWITCH, about, rows

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A home without a key; the test is in another folder, and wandb forgets what it knew."""
    folders = tmp_path / "home", tmp_path / "elsewhere"
    for folder in folders:
        folder.mkdir()
    monkeypatch.chdir(folders[1])
    monkeypatch.setenv("HOME", str(folders[0]))
    for name in ("NETRC", SWITCH, *(name for name in os.environ if name.startswith("WANDB_"))):
        monkeypatch.delenv(name, raising=False)
    wandb.teardown()
    yield folders[0]
    wandb.teardown()


@pytest.fixture
def tracked(shallow: None, tiny_inputs: Any, tiny_values: dict[str, Any]) -> Callable[[str], Row]:
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
        "history": [epoch | {"phase": p, "epoch": e} for p in range(phases) for e in range(2)],
        "seconds": 12.34,
        **columns,
    }


def test_an_offline_run_is_kept_under_our_own_identifier(tracked, monkeypatch, capsys):
    """In a sweep too, in a folder that may lie at home, and without keys."""
    variables = {"WANDB_SWEEP_ID": "s1", "WANDB_RUN_ID": "abc", "WANDB_DIR": "~/runs"}
    for name, value in (KEYS | variables).items():
        monkeypatch.setenv(name, value)
    described = about(tracked("derpp"), Tracking())
    assert "tracking is offline" in capsys.readouterr().err
    wandb.teardown()  # another process writes, and is done when it has ended
    (folder,) = Path("~/runs/wandb").expanduser().glob("offline-run-*")
    assert folder.name.endswith(described["id"])
    assert files_with_keys(Path("results")) + files_with_keys(folder.parent) == []
    content = (folder / f"run-{described['id']}.wandb").read_bytes()
    names = [described[key] for key in ("project", "name", "group")]
    for part in (*names, "accuracy/class-il/seen", described["config"]["host"]):
        assert part.encode() in content, part


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """In place of `wandb.init`; its `return_value` is a run that keeps what it gets."""
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
    outcome = {"status": "finished", "reason": None, "seconds": made["seconds"]}
    assert sent.summary.update.mock_calls == [called(outcome)]
    assert sent.finish.mock_calls == [called(exit_code=0)]


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


# Whether runs are sent, kept or neither

KEY = "0123456789" * 4


def decided(params: str = "auto") -> str:
    return live.decided(Tracking(mode=params))[0]


AUTO, ONLINE, OFFLINE, OFF = "auto", "online", "offline", "off"
KEYED = {"WANDB_API_KEY": KEY}


@pytest.mark.parametrize(
    ("variables", "params", "expected"),
    [
        # without a key, and unasked, nothing is written
        ({}, AUTO, OFF),
        ({}, OFFLINE, OFFLINE),
        ({}, ONLINE, OFFLINE),
        # with a usable key, runs are sent
        (KEYED, AUTO, ONLINE),
        (KEYED, OFF, OFF),
        (KEYED, OFFLINE, OFFLINE),
        ({"WANDB_API_KEY": "too-short"}, AUTO, OFFLINE),
        # any other sign of W&B keeps them; an empty variable is none
        ({"WANDB_PROJECT": "mine"}, AUTO, OFFLINE),
        ({"WANDB_API_KEY": "", "WANDB_PROJECT": "", SWITCH: ""}, AUTO, OFF),
        # who asks goes in order: switch, W&B, params.yaml
        (KEYED | {"WANDB_MODE": "disabled"}, ONLINE, OFF),
        (KEYED | {"WANDB_MODE": "offline"}, OFF, OFFLINE),
        (KEYED | {"WANDB_MODE": "online"}, OFF, ONLINE),
        *((KEYED | {"WANDB_MODE": "online", SWITCH: m}, AUTO, m) for m in (OFFLINE, OFF)),
        (KEYED | {"WANDB_MODE": "offline", SWITCH: ONLINE}, OFF, ONLINE),
        (KEYED | {"WANDB_MODE": "offline", SWITCH: AUTO}, OFF, OFFLINE),
    ],
)
def test_the_mode_is_by_a_key_and_what_the_user_asks(
    monkeypatch, variables, params, expected
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert decided(params) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"machine api.wandb.ai login user password {KEY}", ONLINE),
        ("machine api.wandb.ai login user password x", OFFLINE),
        (f"# wandb\nmachine example.org login me password {KEY}", OFFLINE),
        (f"machine example.org login me password {KEY}", OFF),
        ("not of this form", OFF),
    ],
)
def test_a_key_in_netrc_is_one_for_the_server(home, monkeypatch, content, expected) -> None:
    for name in (".netrc", "elsewhere"):
        (home / name).write_text(f"{content}\n")
        assert decided() == expected
        monkeypatch.setenv("NETRC", "~/elsewhere")
        (home / name).unlink()


def settings(folder: str, line: str) -> None:
    """A settings file of wandb, as `wandb offline` and `wandb login` write it."""
    path = Path(folder).expanduser() / "settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[default]\n{line}\n", encoding="utf-8")


def test_the_server_may_be_ones_own(home, monkeypatch) -> None:
    (home / ".netrc").write_text(f"machine wandb.example.org:8080 login u password {KEY}\n")
    settings("~/.config/wandb", "base_url = http://wandb.example.org:8080")
    assert decided() == ONLINE
    monkeypatch.setenv("WANDB_BASE_URL", "http://other.example.org")
    assert decided() == OFFLINE


@pytest.mark.parametrize("folder", ["wandb", "~/.config/wandb", "~/own"])
def test_a_settings_file_of_wandb_goes_over_params(monkeypatch, folder) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_CONFIG_DIR", "~/own" if folder == "~/own" else "")
    settings(folder, "mode = disabled")
    assert decided("online") == OFF
    settings("wandb", "mode = offline")
    assert decided("online") == OFFLINE, "the project's goes over the user's"
    monkeypatch.setenv("WANDB_MODE", "online")
    assert decided("off") == ONLINE


def test_a_mode_that_wandb_does_not_have_is_refused_by_the_variables_name(monkeypatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "of")
    with pytest.raises(UserError, match="WANDB_MODE.*offline"):
        decided()
