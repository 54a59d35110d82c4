"""A run is followed while it goes on, and tracking can never fail it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from wandb_files import stored_run

from twf import files, study
from twf.jobs.resume import Stopped
from twf.jobs.run import execute
from twf.results import record
from twf.study import Run, params, reading
from twf.study.params import Params
from twf.tracking import live, view
from twf.tracking.live import NoTracker, WandbTracker, start_tracking

CPU = torch.device("cpu")


def planned(loaded: Params, method: str, **changes: Any) -> Run:
    (run,) = [r for r in study.expand(loaded, "tiny").runs.values() if r.method == method]
    return run.model_copy(update=changes)


def record_of(run: Run) -> dict[str, Any]:
    (row,) = record.read(files.record_file(run.study, run.id)).to_pylist()
    return row


def test_an_offline_run_holds_what_the_record_holds(tiny_inputs, no_key, tiny_values):
    tiny_values["tracking"] = {"mode": "auto", "project": "mine"}
    loaded = reading.check(tiny_values)
    run = planned(loaded, "derpp", seed=3, id="split-target.derpp.16.s3")
    execute(loaded, run, CPU)
    row = record_of(run)
    (folder,) = Path("wandb").glob("offline-run-*")
    told = stored_run(folder)

    about = view.about(row)
    assert told["run"].project == "mine-tiny"
    assert told["run"].run_id == about["id"] == f"tiny.split-target.derpp.16.s3.{run.digest[:8]}"
    assert told["run"].display_name == "split-target.derpp.16.s3"
    assert told["run"].run_group == "split-target.derpp.16"
    assert told["run"].job_type == "train"
    assert list(told["run"].tags) == about["tags"]
    assert told["config"] == about["config"]

    *history, matrices = told["history"]
    assert [entry.pop("_step") for entry in history] == list(range(6))
    assert history == view.rows(row)
    assert matrices["matrix/table/nrows"] == 8
    for protocol in params.PROTOCOLS:
        page = folder / "files" / matrices[f"matrix/{protocol}/path"]
        assert page.read_text() == view.heat_map(view.accuracy(row, protocol))
    assert view.summary(row).items() <= told["summary"].items()
    assert told["exit"] == [0]


def test_off_in_the_environment_writes_no_wandb_folder(
    tiny_inputs, no_key, tiny_values, monkeypatch
):
    tiny_values["tracking"] = {"mode": "offline"}
    monkeypatch.setenv(live.SWITCH, "off")
    monkeypatch.setattr("wandb.init", lambda **_: pytest.fail("tracking is off"))
    loaded = reading.check(tiny_values)
    run = planned(loaded, "finetune")
    execute(loaded, run, CPU)
    assert files.record_file("tiny", run.id).exists()
    assert not Path("wandb").exists()


class FakeRun:
    """A Weights & Biases run that keeps what it is told, and fails at a chosen word."""

    def __init__(self, fails_at: str | None = None) -> None:
        self.fails_at = fails_at
        self.told: list[tuple[str, Any]] = []
        self.summary = self
        self.dir = "wandb/run/files"

    def _tell(self, word: str, value: Any = None) -> None:
        self.told.append((word, value))
        if word == self.fails_at:
            raise RuntimeError("no disk")

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        pass

    def log(self, values: dict[str, Any], step: int, commit: bool) -> None:
        assert commit
        self._tell("log", values | {"_step": step})

    def update(self, values: dict[str, Any]) -> None:
        self._tell("update", values)

    def finish(self, exit_code: int = 0) -> None:
        self._tell("finish", exit_code)


Init = Callable[..., dict[str, Any]]


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch, no_key: Path, tiny_inputs: Params) -> Init:
    """`init(fake)`: let `wandb.init` give it; what it is called with comes to be in the result."""

    def replace(fake: FakeRun) -> dict[str, Any]:
        called: dict[str, Any] = {}

        def stand_in(**words: Any) -> FakeRun:
            called.update(words)
            return fake

        monkeypatch.setattr("wandb.init", stand_in)
        return called

    return replace


@pytest.mark.parametrize("word", ["log", "update", "finish"])
def test_a_failing_tracker_warns_once_and_the_run_goes_on(init, tiny_values, capsys, word):
    fake = FakeRun(fails_at=word)
    init(fake)
    tiny_values["tracking"] = {"mode": "offline"}
    loaded = reading.check(tiny_values)
    run = planned(loaded, "finetune")
    execute(loaded, run, CPU)
    (row,) = record.read(files.record_file("tiny", run.id)).to_pylist()
    assert row["status"] == "finished"
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warnings == ["warning: tracking stopped: no disk"]
    assert [told for told, _ in fake.told].count(word) == 1, "nothing is told after a failure"


def test_a_tracker_that_cannot_start_warns_and_the_run_goes_on(
    tiny_inputs, no_key, tiny_values, monkeypatch, capsys
):
    def refuse(**_: Any) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr("wandb.init", refuse)
    tiny_values["tracking"] = {"mode": "online"}
    loaded = reading.check(tiny_values)
    run = planned(loaded, "finetune")
    execute(loaded, run, CPU)
    assert record.read(files.record_file("tiny", run.id))["status"].to_pylist() == ["finished"]
    assert "warning: tracking is off for this run: no network" in capsys.readouterr().err


def test_without_wandb_installed_the_run_goes_on(
    about, tiny_run, no_key, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if not installed
    with start_tracking(params.Tracking(mode="offline"), about(tiny_run("er"))) as tracker:
        assert isinstance(tracker, NoTracker)
    assert "warning: tracking is off for this run" in capsys.readouterr().err


@pytest.fixture
def mode_of(init: Init, about: Callable[..., dict[str, Any]], tiny_run: Any) -> Callable[..., str]:
    """`mode_of(**settings)`: the mode that a run is tracked in."""

    def start(**settings: Any) -> str:
        called = init(FakeRun())
        with start_tracking(params.Tracking(**settings), about(tiny_run("er"))) as tracker:
            assert isinstance(tracker, WandbTracker)
        return called["mode"]

    return start


def test_auto_without_a_key_is_offline(mode_of):
    assert mode_of() == "offline"


def test_auto_with_a_key_in_the_environment_is_online(mode_of, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert mode_of() == "online"


@pytest.mark.parametrize("place", ["home", "NETRC"])
def test_auto_with_a_key_in_netrc_is_online(mode_of, no_key, monkeypatch, place):
    netrc = no_key / ".netrc" if place == "home" else no_key / "elsewhere"
    netrc.write_text("machine example.org login me password x\n")
    if place == "NETRC":
        monkeypatch.setenv("NETRC", str(netrc))
    assert mode_of() == "offline"  # a key for something else
    netrc.write_text("machine api.wandb.ai login user password x\n")
    assert mode_of() == "online"


def test_a_netrc_that_cannot_be_read_is_no_key(mode_of, no_key):
    (no_key / ".netrc").write_bytes(b"\xff\xfe wandb")
    assert mode_of() == "offline"


def test_the_environment_goes_over_params(mode_of, about, tiny_run, monkeypatch):
    monkeypatch.setenv(live.SWITCH, "online")
    assert mode_of(mode="offline") == "online"
    monkeypatch.setenv(live.SWITCH, "off")
    with start_tracking(params.Tracking(mode="online"), about(tiny_run("er"))) as tracker:
        assert isinstance(tracker, NoTracker)


def test_a_run_without_an_outcome_is_marked_as_failed(init, about, tiny_run):
    fake = FakeRun()
    init(fake)

    def fail() -> None:
        with start_tracking(params.Tracking(mode="offline"), about(tiny_run("er"))):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert fake.told == [("finish", 1)]


def test_a_run_that_goes_on_is_told_again_from_its_first_row(init, tiny_values):
    """What was told before the interruption is a part of it, so nothing is there twice."""

    class Interrupted(FakeRun):
        def log(self, values: dict[str, Any], step: int, commit: bool) -> None:
            super().log(values, step, commit)
            if step == 3:  # in the second phase
                os.kill(os.getpid(), signal.SIGTERM)

    tiny_values["tracking"] = {"mode": "offline"}
    loaded = reading.check(tiny_values)
    run = planned(loaded, "er")
    before, after = Interrupted(), FakeRun()
    init(before)
    with pytest.raises(Stopped):
        execute(loaded, run, CPU)
    assert before.told.pop() == ("finish", 1)
    init(after)
    Path("wandb/run").mkdir(parents=True)
    execute(loaded, run, CPU)
    logged = [values for word, values in after.told if word == "log"]
    assert [values for _, values in before.told] == logged[:4]
    rows = [values | {"_step": step} for step, values in enumerate(view.rows(record_of(run)))]
    assert logged[:-1] == rows and len(rows) == 6
