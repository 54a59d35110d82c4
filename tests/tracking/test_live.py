"""Weights & Biases sees what the record holds, and can never fail a run."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from twf import files, params, study, tracking
from twf.evaluation.metrics import final_average_accuracy, forgetting
from twf.params import Params
from twf.results import record
from twf.study import Run
from twf.tracking import NoTracker, WandbTracker, start_tracking
from twf.training.run import execute

CPU = torch.device("cpu")
BLOCK, HEADER = 2**15, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def stored_records(path: Path) -> Iterator[Any]:
    """The protocol buffers of a `.wandb` file, which is a log in LevelDB's form.

    After 7 bytes of its own come blocks of 32 KiB, of which those bytes are part; a record is one
    or more fragments of checksum, length and kind, and no fragment crosses a block.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    content = path.read_bytes()
    place, joined = 7, b""
    while place < len(content):
        left = BLOCK - place % BLOCK
        if left < HEADER:  # padding
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        place += HEADER
        joined += content[place : place + length]
        place += length
        assert kind in (FULL, FIRST, MIDDLE, LAST)
        if kind in (FULL, LAST):
            found = Record()
            found.ParseFromString(joined)
            yield found
            joined = b""
    assert joined == b""


def planned(loaded: Params, method: str, **changes: Any) -> Run:
    (run,) = [r for r in study.expand(loaded, "tiny").runs.values() if r.method == method]
    return run.model_copy(update=changes)


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without a key; gives it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("NETRC", "WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", tracking.SWITCH):
        monkeypatch.delenv(name, raising=False)
    return home


def items(entries: Any) -> dict[str, Any]:
    """Keys and values of history, summary or configuration."""
    return {
        entry.key or "/".join(entry.nested_key): json.loads(entry.value_json) for entry in entries
    }


def test_an_offline_run_holds_what_the_record_holds(tiny_inputs, no_key, tiny_values):
    tiny_values["tracking"] = {"mode": "auto", "project": "mine"}
    loaded = params.check(tiny_values)
    run = planned(loaded, "derpp", seed=3, id="split-target.derpp.16.s3")
    execute(loaded, run, CPU)
    (row,) = record.read(files.record_file("tiny", run.id)).to_pylist()
    (path,) = Path("wandb").glob("offline-run-*/run-*.wandb")
    records = list(stored_records(path))

    (about,) = [r.run for r in records if r.HasField("run")][:1]
    assert about.project == "mine"
    assert about.run_id == f"tiny.split-target.derpp.16.s3.{run.digest[:8]}"
    assert about.display_name == "split-target.derpp.16.s3"
    assert about.run_group == "split-target.derpp.16"  # seeds together
    assert list(about.tags) == ["tiny", "split-target", "derpp", "from-origin"]
    config = items(about.config.update)
    config.pop("_wandb", None)
    assert config == json.loads(run.parameters) | {"digest": run.digest}

    logged = [items(r.history.item) for r in records if r.HasField("history")]
    epochs = [entry for entry in logged if "loss/total" in entry]
    assert [(e["phase"], e["epoch"]) for e in epochs] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for told, kept in zip(epochs, row["history"], strict=True):
        assert told["loss/total"] == kept["loss"]
        assert {k: told[f"loss/{k}"] for k, _ in kept["terms"]} == dict(kept["terms"])
    tasks = [entry for entry in logged if "accuracy/class-il/seen" in entry]
    assert [entry["phase"] for entry in tasks] == [0, 1]
    for protocol in params.PROTOCOLS:
        matrix = row[f"accuracy_{protocol.replace('-', '_')}"]
        for phase, told in enumerate(tasks):
            assert [told[f"accuracy/{protocol}/task-{i}"] for i in (0, 1)] == matrix[phase]
            seen = matrix[phase][: phase + 1]
            assert told[f"accuracy/{protocol}/seen"] == pytest.approx(sum(seen) / len(seen))

    summary: dict[str, Any] = {}
    for found in records:
        if found.HasField("summary"):
            summary |= items(found.summary.update)
    assert summary["status"] == "finished"
    for protocol in params.PROTOCOLS:
        matrix = row[f"accuracy_{protocol.replace('-', '_')}"]
        assert summary[f"faa/{protocol}"] == final_average_accuracy(matrix)
        assert summary[f"ff/{protocol}"] == forgetting(matrix)
    (ending,) = [r.exit for r in records if r.HasField("exit")]
    assert ending.exit_code == 0


def test_off_in_the_environment_writes_no_wandb_folder(
    tiny_inputs, no_key, tiny_values, monkeypatch
):
    tiny_values["tracking"] = {"mode": "offline"}
    monkeypatch.setenv(tracking.SWITCH, "off")
    monkeypatch.setattr("wandb.init", lambda **_: pytest.fail("tracking is off"))
    loaded = params.check(tiny_values)
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

    def _tell(self, word: str, value: Any = None) -> None:
        self.told.append((word, value))
        if word == self.fails_at:
            raise RuntimeError("no disk")

    def log(self, values: dict[str, Any]) -> None:
        self._tell("log", values)

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
    loaded = params.check(tiny_values)
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
    loaded = params.check(tiny_values)
    run = planned(loaded, "finetune")
    execute(loaded, run, CPU)
    assert record.read(files.record_file("tiny", run.id))["status"].to_pylist() == ["finished"]
    assert "warning: tracking is off for this run: no network" in capsys.readouterr().err


def test_without_wandb_installed_the_run_goes_on(tiny_run, no_key, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if not installed
    with start_tracking(params.Tracking(mode="offline"), tiny_run("er")) as tracker:
        assert isinstance(tracker, NoTracker)
    assert "warning: tracking is off for this run" in capsys.readouterr().err


def mode_of(init: Init, run: Run, **settings: Any) -> str:
    called = init(FakeRun())
    with start_tracking(params.Tracking(**settings), run) as tracker:
        assert isinstance(tracker, WandbTracker)
    return called["mode"]


def test_auto_without_a_key_is_offline(init, tiny_run):
    assert mode_of(init, tiny_run("er")) == "offline"


def test_auto_with_a_key_in_the_environment_is_online(init, tiny_run, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert mode_of(init, tiny_run("er")) == "online"


@pytest.mark.parametrize("place", ["home", "NETRC"])
def test_auto_with_a_key_in_netrc_is_online(init, tiny_run, no_key, monkeypatch, place):
    netrc = no_key / ".netrc" if place == "home" else no_key / "elsewhere"
    netrc.write_text("machine example.org login me password x\n")
    if place == "NETRC":
        monkeypatch.setenv("NETRC", str(netrc))
    assert mode_of(init, tiny_run("er")) == "offline"  # a key for something else
    netrc.write_text("machine api.wandb.ai login user password x\n")
    assert mode_of(init, tiny_run("er")) == "online"


def test_a_netrc_that_cannot_be_read_is_no_key(init, tiny_run, no_key):
    (no_key / ".netrc").write_bytes(b"\xff\xfe wandb")
    assert mode_of(init, tiny_run("er")) == "offline"


def test_the_environment_goes_over_params(init, tiny_run, monkeypatch):
    monkeypatch.setenv(tracking.SWITCH, "online")
    assert mode_of(init, tiny_run("er"), mode="offline") == "online"
    monkeypatch.setenv(tracking.SWITCH, "off")
    with start_tracking(params.Tracking(mode="online"), tiny_run("er")) as tracker:
        assert isinstance(tracker, NoTracker)


def test_a_run_without_an_outcome_is_marked_as_failed(init, tiny_run):
    fake = FakeRun()
    init(fake)

    def fail() -> None:
        with start_tracking(params.Tracking(mode="offline"), tiny_run("er")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert fake.told == [("finish", 1)]


def test_accuracy_seen_is_over_the_tasks_so_far():
    fake = FakeRun()
    tracker = WandbTracker(fake, phases=3)
    for task in range(3):
        tracker.task(task, [90.0, 60.0, 30.0], [100.0, 80.0, 60.0])
    values = [values for _, values in fake.told]
    assert [v["accuracy/class-il/seen"] for v in values] == [90.0, 75.0, 60.0]
    assert [v["accuracy/task-il/seen"] for v in values] == [100.0, 90.0, 80.0]


def test_joint_tells_the_mean_over_all_tasks_and_no_forgetting():
    fake = FakeRun()
    tracker = WandbTracker(fake, phases=1)
    tracker.task(0, [80.0, 60.0], [90.0, 70.0])
    tracker.finish("finished", [[80.0, 60.0]], [[90.0, 70.0]])
    (_, told), (_, summary), _ = fake.told
    assert told["accuracy/class-il/seen"] == 70.0 and told["accuracy/task-il/seen"] == 80.0
    assert summary["faa/class-il"] == 70.0 and summary["ff/class-il"] is None


def test_a_diverged_run_tells_its_status_and_no_accuracy():
    fake = FakeRun()
    WandbTracker(fake, phases=2).finish("diverged", [], [])
    assert fake.told == [("update", {"status": "diverged"}), ("finish", 0)]
