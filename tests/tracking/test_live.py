"""A run is followed while it trains, and tracking can never fail it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wandb_files import stored_run

from twf.jobs.resume import Stopped
from twf.study.params import PROTOCOLS, Tracking
from twf.tracking import live, view
from twf.tracking.live import start_tracking


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


class FakeRun:
    """A Weights & Biases run that keeps what it gets, and fails at a chosen call."""

    def __init__(self, fails_at: str | None = None) -> None:
        self.fails_at = fails_at
        self.got: list[tuple[str, Any]] = []
        self.summary = self
        self.dir = "wandb/run/files"

    def _take(self, call: str, value: Any = None) -> None:
        self.got.append((call, value))
        if call == self.fails_at:
            raise RuntimeError("no disk")

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        pass

    def log(self, values: dict[str, Any], step: int, commit: bool) -> None:
        assert commit
        self._take("log", values | {"_step": step})

    def update(self, values: dict[str, Any]) -> None:
        self._take("update", values)

    def finish(self, exit_code: int = 0) -> None:
        self._take("finish", exit_code)


Init = Callable[[FakeRun], dict[str, Any]]


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch, no_key: Path, tmp_path: Path) -> Init:
    """`init(fake)`: let `wandb.init` return it; the result collects the words of the call."""
    monkeypatch.chdir(tmp_path)

    def replace(fake: FakeRun) -> dict[str, Any]:
        called: dict[str, Any] = {}
        monkeypatch.setattr("wandb.init", lambda **words: called.update(words) or fake)
        return called

    return replace


def warnings(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if "warning" in line]


@pytest.mark.parametrize("call", ["log", "update", "finish"])
def test_a_failing_tracker_warns_once_and_the_run_goes_on(init, tracked, record_of, capsys, call):
    fake = FakeRun(fails_at=call)
    init(fake)
    assert record_of(tracked("finetune"))["status"] == "finished"
    (warning,) = warnings(capsys)
    assert "no disk" in warning
    assert [name for name, _ in fake.got].count(call) == 1, "nothing is sent after a failure"


def test_a_tracker_that_cannot_start_warns_and_the_run_goes_on(
    tracked, record_of, monkeypatch, capsys
):
    def refuse(**_: Any) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr("wandb.init", refuse)
    assert record_of(tracked("finetune", "online"))["status"] == "finished"
    (warning,) = warnings(capsys)
    assert "no network" in warning


@pytest.fixture
def mode_of(init: Init, before: Any, tiny_run: Any) -> Callable[..., str | None]:
    """`mode_of(mode)`: the mode that `wandb.init` is called with; None where it is not called."""

    def start(mode: str = "auto") -> str | None:
        called = init(FakeRun())
        with start_tracking(Tracking(mode=mode), before(tiny_run("er"))):
            return called.get("mode")

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


def test_a_run_without_an_outcome_is_marked_as_failed(init, before, tiny_run):
    fake = FakeRun()
    init(fake)
    tracking = start_tracking(Tracking(mode="offline"), before(tiny_run("er")))
    with pytest.raises(KeyboardInterrupt), tracking:
        raise KeyboardInterrupt
    assert fake.got == [("finish", 1)]


def test_a_resumed_run_is_sent_again_from_its_first_row(init, tracked, tiny_inputs, record_of):
    """What was sent before the interruption is the beginning of it, so nothing is there twice."""

    class Interrupted(FakeRun):
        def log(self, values: dict[str, Any], step: int, commit: bool) -> None:
            super().log(values, step, commit)
            if step == 3:  # in the second phase
                os.kill(os.getpid(), signal.SIGTERM)

    first, second = Interrupted(), FakeRun()
    init(first)
    with pytest.raises(Stopped):
        tracked("er")
    assert first.got.pop() == ("finish", 1)
    init(second)
    Path("wandb/run").mkdir(parents=True)
    run = tracked("er")
    logged = [values for call, values in second.got if call == "log"]
    assert [values for _, values in first.got] == logged[:4]
    rows = [values | {"_step": step} for step, values in enumerate(view.rows(record_of(run)))]
    assert logged[:-1] == rows and len(rows) == 6
