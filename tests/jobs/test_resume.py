"""A run that is stopped or killed at any moment ends in the results of one that never was."""

import contextlib
import math
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support import CPU, execute, pretrain, spy

from twf import files, study
from twf.errors import UserError
from twf.jobs import checkpoints, resume
from twf.jobs.resume import Keeper, Stopped, keeping
from twf.learning import loop
from twf.learning.loop import Outcome
from twf.learning.methods.base import Method
from twf.learning.state import flatten
from twf.learning.step import CaptureError
from twf.results import record
from twf.study.methods import METHODS

pytestmark = pytest.mark.usefixtures("shallow")

GUARD = {"parameters": "these", "code": "this"}


class Impatient(Keeper):
    """Stops its run after every step."""

    def pause(self, *words: Any, **named: Any) -> None:
        self.stopping = signal.SIGTERM
        super().pause(*words, **named)


@pytest.fixture
def in_pieces(train, tmp_path) -> Callable[..., Outcome]:
    """`in_pieces(method, **changes)`: the outcome of a run that is stopped after every step."""

    def pieces(*words: Any, **changes: Any) -> Outcome:
        for leg in range(100):
            keeper = Impatient(tmp_path / "legs" / "state.safetensors", GUARD, math.inf)
            with contextlib.suppress(Stopped):
                outcome = train(*words, keeper=keeper, **changes)
                assert leg >= 4 * len(outcome.accuracy_class_il)  # 2 epochs of 2 steps or more
                return outcome
        raise AssertionError("it does not come to an end")

    return pieces


@pytest.mark.parametrize("name", METHODS)
def test_a_run_stopped_after_every_step_ends_as_if_never_stopped(in_pieces, whole, name):
    expected = whole(name)
    torch.manual_seed(12345)  # torch's own generator has no part in a run
    assert in_pieces(name) == expected


def test_a_probed_run_that_goes_on_is_probed_against_its_start(in_pieces, train, tiny_run):
    probed = {"probes": True, "source_data": "origin"}
    probed["source_augmentation"] = tiny_run("derpp-pretraining").source_augmentation
    assert in_pieces("twf", **probed) == train("twf", **probed)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("execution", ["plain", "captured"])
@pytest.mark.parametrize("name", ["twf", "derpp", "icarl"])
def test_on_a_gpu_too_by_deterministic_algorithms(train, in_pieces, monkeypatch, name, execution):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    on_gpu = {"device": torch.device("cuda"), "execution": execution}
    try:
        assert in_pieces(name, **on_gpu) == train(name, **on_gpu)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.fixture
def saved(train, tmp_path) -> Path:
    """The state of a miniature run of TwF, stopped after its first step."""
    path = tmp_path / "saved" / "state.safetensors"
    with pytest.raises(Stopped):
        train("twf", Impatient(path, GUARD, math.inf))
    return path


def test_a_state_of_other_parameters_or_code_or_torn_is_not_used(saved, capsys, train, whole):
    for key in GUARD:
        assert Keeper(saved, GUARD | {key: "other"}, math.inf).load() is None
        message = capsys.readouterr().err
        assert str(saved) in message and key in message
    saved.write_bytes(saved.read_bytes()[:-1])
    assert train("twf", Keeper(saved, GUARD, math.inf)) == whole("twf")
    assert f"{saved} cannot be read" in capsys.readouterr().err


def test_a_state_that_cannot_be_written_leaves_the_last_one_and_the_run_goes_on(
    saved, monkeypatch, capsys, train, whole
):
    before = saved.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "serialized", full)
    assert train("twf", Keeper(saved, GUARD, 0.0)) == whole("twf")
    assert f"not saved: cannot write {saved}" in capsys.readouterr().err
    with pytest.raises(Stopped, match=r"stopped, but not saved \(.*No space left on device\)"):
        Impatient(saved, GUARD, math.inf).pause(lambda: {"a": torch.zeros(3)})
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_what_a_state_cannot_hold_is_refused():
    for value in (torch.Generator(), {0: "by a number, which JSON has not"}):
        with pytest.raises(TypeError, match="cannot hold"):
            flatten({"a": [value]}, {})


# Whole runs


@pytest.fixture
def recorded(lasting) -> Callable[[study.Run], dict[str, Any]]:
    """`recorded(planned)`: what lasts of a run's record, which is then gone."""

    def take(planned: study.Run) -> dict[str, Any]:
        path = files.record_file("tiny", planned.id)
        (row,) = record.read(path).to_pylist()
        path.unlink()
        return lasting(row)

    return take


def begun(*words: Any, every: float = 0.0) -> BaseProcess:
    """A process that executes a run and saves its state, after every step if not told otherwise."""
    work = partial(execute, *words, CPU, save_every=every)
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


@pytest.mark.parametrize("method", ["twf", "icarl", "co2l", "lwf"])
def test_a_run_killed_at_random_moments_has_the_same_record(
    tiny_inputs, tiny_run, recorded, method
):
    planned, start = tiny_run(method), time.monotonic()
    execute(tiny_inputs, planned, CPU)
    takes, whole = time.monotonic() - start, recorded(planned)
    chosen, kills = random.Random(method), 0
    while kills < 5:
        process = begun(tiny_inputs, planned)
        process.join(chosen.uniform(0, takes))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    execute(tiny_inputs, planned, CPU)
    assert recorded(planned) == whole
    assert not files.state_file("tiny", planned.id).exists()


def test_a_run_killed_after_its_record_is_written_ends_in_the_same_one(
    tiny_inputs, tiny_run, recorded, monkeypatch
):
    """Its state is still there, and nothing is trained anew, also where an engine removed it."""
    planned = tiny_run("er")
    with monkeypatch.context() as killed:
        killed.setattr(Keeper, "done", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        process = begun(tiny_inputs, planned, every=math.inf)
        process.join()
    assert process.exitcode == -signal.SIGKILL
    first = recorded(planned)
    monkeypatch.setattr(loop, "_epoch", None)
    execute(tiny_inputs, planned, CPU)
    assert recorded(planned) == first
    assert not files.state_file("tiny", planned.id).exists()


def test_a_run_told_to_stop_saves_and_goes_on_later(tiny_inputs, tiny_run, recorded, monkeypatch):
    """What it saves names all that the result depends on."""
    planned, state = tiny_run("er"), files.state_file("tiny", tiny_run("er").id)
    execute(tiny_inputs, planned, CPU)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # on its way out, it is done
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    whole = recorded(planned)
    pauses: list[int] = []

    def tell(*_: Any) -> None:
        pauses.append(1)
        if len(pauses) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    spy(monkeypatch, Keeper, "pause", tell)
    with pytest.raises(Stopped) as end:
        execute(tiny_inputs, planned, CPU)
    assert end.value.status == 143
    assert len(pauses) == 3 and not files.record_file("tiny", planned.id).exists()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    guard = checkpoints.read(state, "").about["guard"]
    depends = {"plan", "code", "inputs", "versions", "device", "execution", "precision"}
    assert guard.keys() >= depends | {"threads", "deterministic", "gpu"}
    assert guard["threads"] == torch.get_num_threads()
    execute(tiny_inputs, planned, CPU)
    assert len(pauses) < 3 + 9  # it did not start over
    assert recorded(planned) == whole


def test_a_run_told_to_stop_before_its_first_step_ends_at_once(tiny_inputs, tiny_run, monkeypatch):
    """While it evaluates; `Stopped` is none of the errors that may be caught on its way."""

    def told(*_: Any) -> None:
        with contextlib.suppress(Exception):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)

    planned = tiny_run("er")
    before = signal.default_int_handler  # a shell's background ignores it
    signal.signal(signal.SIGINT, before)
    monkeypatch.setattr(loop, "accuracy_per_task", told)
    with pytest.raises(Stopped, match="before the next step: the same command begins again") as end:
        execute(tiny_inputs, planned, CPU)
    assert end.value.status == 130
    assert not files.state_file("tiny", planned.id).exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_between_tasks_a_run_stops_at_once_and_repeats_no_epoch(tiny_inputs, tiny_run, monkeypatch):
    def told(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(60)

    planned, epochs = tiny_run("er"), list[int]()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    spy(monkeypatch, loop, "_epoch", lambda *_: epochs.append(1))
    with monkeypatch.context() as patch:
        patch.setattr(Method, "end_task", told)
        with pytest.raises(Stopped, match="goes on from its saved state") as end:
            execute(tiny_inputs, planned, CPU)
    assert end.value.status == 129 and len(epochs) == planned.epochs
    execute(tiny_inputs, planned, CPU)
    assert len(epochs) == planned.epochs * planned.phases


def test_a_signal_that_was_ignored_stays_so(tmp_path):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with keeping(tmp_path / "run" / "state.safetensors", {}, math.inf):
        os.kill(os.getpid(), signal.SIGHUP)


def test_a_full_gpu_is_told_with_the_remedy(tmp_path):
    with (
        pytest.raises(UserError, match="CUDA out of memory: fewer `gpu_slots`"),
        keeping(tmp_path / "run" / "state.safetensors", {}, math.inf),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_one_process_is_at_a_run_and_a_step_that_cannot_be_captured_is_told(tmp_path):
    path = tmp_path / "run" / "state.safetensors"

    def work() -> None:
        with keeping(path, {}, math.inf):
            other = pytest.raises(UserError, match=f"this run .*another process.*{path.parent}")
            with other, keeping(path, {}, math.inf):
                pass
            raise CaptureError("not permitted")

    for _ in range(2):  # it is free again when it is left
        with pytest.raises(UserError, match=r"\(not permitted\): --execution plain"):
            work()


@pytest.mark.usefixtures("deep")
def test_pretraining_stopped_after_every_step_gives_the_same_network(tiny_inputs, monkeypatch):
    path = files.checkpoint_file("origin")
    whole, legs = load_file(path), 0  # as it was made for all tests
    path.unlink()
    monkeypatch.setattr(resume, "Keeper", Impatient)
    while not path.exists():
        legs += 1
        with contextlib.suppress(Stopped):
            pretrain(tiny_inputs, "origin", CPU)
    assert legs == 33 // 8 + 1  # the last leg has nothing left to train
    torch.testing.assert_close(load_file(path), whole, rtol=0, atol=0)
    assert not files.state_file("pretrain", "origin").exists()


def test_the_time_of_a_resumed_run_is_that_of_all_its_parts(tmp_path):
    first, second = (Keeper(tmp_path / "state.safetensors", {}, math.inf) for _ in range(2))
    first.spent = 1e9
    first.save({})
    second.load()
    assert 1e9 <= second.seconds < 1.5e9
