"""A run is followed while it trains, and tracking can never fail it."""

from __future__ import annotations

import os
import re
import signal
from operator import attrgetter
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from unittest.mock import call as called

import pytest
from wandb_files import stored_run

from twf.jobs.resume import Stopped
from twf.study.params import Tracking
from twf.tracking import live as view
from twf.tracking.live import start_tracking


def test_an_offline_run_holds_what_the_record_holds(tracked, monkeypatch):
    """Under our own identifier, in a sweep too, in a folder that may lie at home."""
    variables = {"WANDB_SWEEP_ID": "s1", "WANDB_RUN_ID": "abc", "WANDB_DIR": "~/runs"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    row = tracked("derpp")
    (folder,) = Path("~/runs/wandb").expanduser().glob("offline-run-*")
    stored = stored_run(folder)
    about, header = view.about(row, Tracking()), stored["run"]
    assert (header.project, header.run_id) == (about["project"], about["id"])
    assert (header.display_name, header.run_group) == (about["name"], about["group"])
    assert stored["config"] == about["config"]
    assert [entry.pop("_step") for entry in stored["history"]] == list(range(6))
    assert stored["history"] == view.rows(row)
    assert view.summary(row).items() <= stored["summary"].items()
    assert stored["exit"] == [0]


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


@pytest.mark.parametrize(("mode", "asked"), [("auto", ["online"]), ("off", [])])
def test_the_mode_is_what_is_decided(init, row, tiny_run, monkeypatch, mode, asked):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with start_tracking(Tracking(mode=mode), row(tiny_run("er"))):
        pass
    assert [each.kwargs["mode"] for each in init.mock_calls if "mode" in each.kwargs] == asked


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
    rows = view.rows(tracked("er"))
    again = sent.log.mock_calls
    assert again == [called(row, step=step, commit=True) for step, row in enumerate(rows)]
    assert first == again[:4] and len(rows) == 6
