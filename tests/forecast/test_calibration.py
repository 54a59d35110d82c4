"""What is timed is what training does, in the shapes of the study."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from twf.forecast import calibration, cost
from twf.forecast.cost import Timing
from twf.learning.step import Plain
from twf.study.methods import METHODS
from twf.study.reading import check

CPU = torch.device("cpu")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few calls as can be."""
    monkeypatch.setattr(calibration, "BUDGET", 0.0)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_timed_without_its_data(
    hasty, method, tiny_run, tiny_values, monkeypatch
) -> None:
    tasks: Counter[int] = Counter()
    step = Plain.step

    def counted(steps, index, rate):
        tasks[steps.method.task] += 1
        assert len(index) == 8
        assert steps.images.shape[1:] == (3, 16, 16)
        return step(steps, index, rate)

    monkeypatch.setattr(Plain, "step", counted)
    timing = calibration.calibrate(check(tiny_values), tiny_run(method), CPU)
    assert dict(tasks) == ({0: 3} if method == "joint" else {0: 3, 1: 3})
    assert min(timing.setup, timing.first_steps, timing.later_steps, timing.evaluation) > 0
    assert (timing.begin > 0) == bool(cost.PASSES[method].begins_with)
    assert (timing.end > 0) == bool(cost.PASSES[method].ends_with)
    assert timing.memory_mib > timing.state_mib >= timing.checkpoint_mib > 0
    assert timing.device_mib is None


def test_what_a_first_step_compiles_is_not_timed(hasty, tiny_run, tiny_values, monkeypatch) -> None:
    done: list[str] = []

    def slowly(work, device):
        done.append("timed")
        return 1.0

    monkeypatch.setattr(calibration, "seconds_per_call", slowly)
    monkeypatch.setattr(
        torch,
        "compile",
        lambda loss, fullgraph: lambda batch: done.append("compiled") or loss(batch),
    )
    params = check(tiny_values)
    calibration.calibrate(params, tiny_run("er"), CPU, "compiled")
    assert done == ["compiled", "timed", "compiled", "compiled", "timed", "timed"]
    done.clear()
    calibration.calibrate_pretraining(params, "origin", CPU, "compiled")
    assert done == ["compiled", "timed", "timed"]


def test_pretraining_can_be_timed_without_its_data(hasty, tiny_values) -> None:
    timing = calibration.calibrate_pretraining(check(tiny_values), "origin", CPU)
    assert isinstance(timing, Timing)
    assert min(timing.first_steps, timing.evaluation, timing.checkpoint_mib) > 0
    assert timing.state_mib > timing.checkpoint_mib  # the momentum's velocities are in it


def test_what_is_slow_is_called_once_and_the_rest_until_the_time_is_spent(monkeypatch) -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1

    assert calibration.seconds_per_call(work, CPU) >= 0
    assert calls > 100
    calls = 0
    monkeypatch.setattr(calibration, "SLOW", -1.0)
    calibration.seconds_per_call(work, CPU)
    assert calls == 1
