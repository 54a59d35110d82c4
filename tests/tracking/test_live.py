"""A run is followed while it trains, and tracking can never fail it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
from wandb_files import stored_run

from twf.errors import UserError
from twf.jobs.resume import Stopped
from twf.study import reading
from twf.study.params import PROTOCOLS, Tracking
from twf.tracking import live, view
from twf.tracking.live import start_tracking
from twf.upkeep import doctor


def test_an_offline_run_holds_what_the_record_holds(tracked, record_of):
    run = tracked("derpp", "auto", seed=3, id="split-target.derpp.16.s3")
    row = record_of(run)
    (folder,) = Path("wandb").glob("offline-run-*")
    stored = stored_run(folder)

    about = view.about(row)
    header = stored["run"]
    assert header.project == view.project(Tracking(), "tiny")
    assert header.run_id == about["id"] == f"tiny.{run.id}.{run.digest[:8]}"
    assert (header.display_name, header.run_group) == (run.id, view.group(row))
    assert (header.job_type, list(header.tags)) == ("train", about["tags"])
    assert stored["config"] == about["config"]

    *history, matrices = stored["history"]
    assert [entry.pop("_step") for entry in history] == list(range(6))
    assert history == view.rows(row)
    assert matrices["matrix/table/nrows"] == 8
    for protocol in PROTOCOLS:
        page = folder / "files" / matrices[f"matrix/{protocol}/path"]
        assert page.read_text() == view.heat_map(view.accuracy(row, protocol))
    assert view.summary(row).items() <= stored["summary"].items()
    assert stored["exit"] == [0]


FOLLOWED = """
import pickle, sys
from twf.study.params import Tracking
from twf.tracking.live import start_tracking
row = pickle.load(sys.stdin.buffer)
with start_tracking(Tracking(mode="offline"), row) as tracker:
    tracker.finish(row)
"""


def test_offline_nothing_is_sent(server, row, tiny_run, tmp_path):
    """Nor what W&B tells of itself when its process ends, and a key there is changes nothing."""
    followed = pickle.dumps(row(tiny_run("er")))
    subprocess.run([sys.executable, "-c", FOLLOWED], input=followed, cwd=tmp_path, check=True)
    assert list(tmp_path.glob("wandb/offline-run-*"))
    assert server.paths == set()


def test_where_the_process_of_wandb_does_not_start_the_run_goes_on(row, tiny_run, tmp_path):
    followed = pickle.dumps(row(tiny_run("er")))
    impatient = f"from twf.tracking import client\nclient.PATIENCE = 1e-3\n{FOLLOWED}"
    log = tmp_path / "log"  # no pipe: W&B's process, which may end later, would hold it open
    with log.open("wb") as file:
        command = [sys.executable, "-c", impatient]
        subprocess.run(command, input=followed, cwd=tmp_path, stderr=file, check=True, timeout=120)
    assert "warning: tracking is off for this run" in log.read_text()


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch, no_key: Path, tmp_path: Path) -> Mock:
    """In place of `wandb.init`; its `return_value` is a run that keeps what it gets."""
    monkeypatch.chdir(tmp_path)
    run = Mock(spec=["define_metric", "log", "summary", "finish"], dir="wandb/run/files")
    init = Mock(return_value=run)
    monkeypatch.setattr("wandb.init", init)
    return init


def warnings(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if "warning" in line]


@pytest.mark.parametrize("call", ["log", "summary.update", "finish"])
def test_a_failing_tracker_warns_once_and_the_run_goes_on(init, tracked, record_of, capsys, call):
    failing = attrgetter(call)(init.return_value)
    failing.side_effect = RuntimeError("no disk")
    assert record_of(tracked("finetune"))["status"] == "finished"
    (warning,) = warnings(capsys)
    assert "no disk" in warning
    failing.assert_called_once()  # nothing is sent after a failure


def test_a_tracker_that_cannot_start_warns_and_the_run_goes_on(init, tracked, record_of, capsys):
    init.side_effect = RuntimeError("no network")
    assert record_of(tracked("finetune", "online"))["status"] == "finished"
    (warning,) = warnings(capsys)
    assert "no network" in warning


@pytest.fixture
def mode_of(init: Mock, before: Any, tiny_run: Any) -> Callable[..., str | None]:
    """`mode_of(mode)`: the mode that `wandb.init` is called with; None where it is not called."""

    def start(mode: str = "auto") -> str | None:
        init.reset_mock()
        with start_tracking(Tracking(mode=mode), before(tiny_run("er"))):
            return init.call_args.kwargs["mode"] if init.called else None

    return start


def test_auto_is_online_with_a_key_in_the_environment(mode_of, monkeypatch):
    assert mode_of() == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert mode_of() == "online"


@pytest.mark.parametrize("name", [".netrc", "elsewhere"])
def test_auto_is_online_with_a_key_in_netrc(mode_of, no_key, monkeypatch, name):
    netrc = no_key / name
    if name != ".netrc":
        monkeypatch.setenv("NETRC", str(netrc))
    for content, mode in {
        b"machine example.org login me password x\n": "offline",
        b"\xff\xfe wandb": "offline",  # not text
        b"machine api.wandb.ai login user password x\n": "online",
    }.items():
        netrc.write_bytes(content)
        assert mode_of() == mode


def test_the_environment_goes_over_params(mode_of, monkeypatch):
    monkeypatch.setenv(live.SWITCH, "online")
    assert mode_of("offline") == "online"
    monkeypatch.setenv(live.SWITCH, "off")
    assert mode_of("online") is None


@pytest.mark.parametrize(
    ("told", "mode"),
    [("disabled", None), ("offline", "offline"), ("dryrun", "offline"), ("online",) * 2],
)
def test_what_wandb_is_told_goes_over_params(mode_of, monkeypatch, told, mode):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_MODE", told)
    for of_params in ("auto", "online", "offline", "off"):
        assert mode_of(of_params) == mode
    monkeypatch.setenv(live.SWITCH, "offline")
    assert mode_of() == "offline"


@pytest.mark.parametrize(("said", "mode"), [("true", None), ("1", None), ("false", "online")])
def test_transformers_way_to_turn_wandb_off_turns_it_off(mode_of, monkeypatch, said, mode):
    """It goes over `WANDB_MODE`, so that nothing is sent that a user did not mean to send."""
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_DISABLED", said)
    assert mode_of() == mode


@pytest.mark.parametrize("where", ["here", "home", "config"])
def test_a_settings_file_of_wandb_goes_over_params(mode_of, no_key, monkeypatch, tmp_path, where):
    """As `wandb offline` and `wandb disabled` write it."""
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    folders = {"here": Path("wandb"), "home": no_key / ".config/wandb", "config": tmp_path / "own"}
    if where == "config":
        monkeypatch.setenv("WANDB_CONFIG_DIR", str(folders[where]))
    folders[where].mkdir(parents=True, exist_ok=True)
    (folders[where] / "settings").write_text("[default]\nmode = disabled\n", encoding="utf-8")
    assert mode_of("online") is None
    monkeypatch.setenv("WANDB_MODE", "online")
    assert mode_of("off") == "online"


def test_a_mode_that_wandb_does_not_have_is_refused(mode_of, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "of")
    with pytest.raises(UserError, match=r"'of' in WANDB_MODE; there is online"):
        mode_of()


def test_doctor_says_what_decided(tiny_values, monkeypatch, no_key):
    params = reading.check(tiny_values | {"tracking": {"mode": "offline"}})

    def said() -> str:
        (check,) = doctor.tracking(params)
        return check.said

    assert said() == "offline, by tracking.mode of params.yaml"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert said() == "off, by WANDB_MODE"
    monkeypatch.setenv(live.SWITCH, "auto")
    monkeypatch.delenv("WANDB_MODE")
    assert said() == "auto: offline, by TWF_TRACKING"


def test_an_error_without_a_message_is_named(init, tracked, record_of, capsys):
    """As that of a key which the server refuses."""
    init.side_effect = PermissionError()
    assert record_of(tracked("finetune", "online"))["status"] == "finished"
    (warning,) = warnings(capsys)
    assert "PermissionError" in warning and "key" in warning


def test_a_run_without_an_outcome_is_marked_as_failed(init, before, tiny_run):
    tracking = start_tracking(Tracking(mode="offline"), before(tiny_run("er")))
    with pytest.raises(KeyboardInterrupt), tracking:
        raise KeyboardInterrupt
    assert init.return_value.finish.mock_calls == [call(exit_code=1)]
    assert not init.return_value.log.called


def test_a_resumed_run_is_sent_again_from_its_first_row(init, tracked, tiny_inputs, record_of):
    """What was sent before the interruption is the beginning of it, so nothing is there twice."""

    def interrupt(_: Any, step: int, commit: bool) -> None:
        if step == 3:  # in the second phase
            os.kill(os.getpid(), signal.SIGTERM)

    sent = init.return_value
    sent.log.side_effect = interrupt
    with pytest.raises(Stopped):
        tracked("er")
    assert sent.finish.mock_calls == [call(exit_code=1)]
    first = sent.log.mock_calls
    sent.reset_mock(side_effect=True)
    Path("wandb/run").mkdir(parents=True)
    rows = view.rows(record_of(tracked("er")))
    *again, _ = sent.log.mock_calls  # the row of the matrices ends them
    assert again == [call(row, step=step, commit=True) for step, row in enumerate(rows)]
    assert first == again[:4] and len(rows) == 6
