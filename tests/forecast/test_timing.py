"""What is timed is what training does, as often as training does it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from twf.data.registry import Splits
from twf.forecast import timing
from twf.forecast.work import Work, of_run, pretraining
from twf.jobs.resume import Keeper
from twf.learning import pretraining as learning
from twf.learning.step import executed
from twf.study.methods import METHODS
from twf.study.reading import check

CPU = torch.device("cpu")
IMAGES = {"target": Splits(train=44, test=16), "origin": Splits(train=33, test=12)}


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second is an image that passes a network."""
    images = 0

    def count(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        nonlocal images
        if isinstance(module, torch.nn.Conv2d) and module.in_channels == 3:
            images += len(inputs[0])

    for clock in ("monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, clock, lambda: float(images))
    handle = torch.nn.modules.module.register_module_forward_pre_hook(count)
    yield
    handle.remove()


def passed(work: Callable[[], object]) -> float:
    """How many images pass a network in a call."""
    before = time.monotonic()
    work()
    return time.monotonic() - before


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_forecast_to_do_what_it_does(
    counting, method, train, tiny_run, tiny_values
) -> None:
    work = of_run(check(tiny_values), tiny_run(method, epochs=3), IMAGES)
    cost = timing.cost(check(tiny_values), work, CPU)
    really = passed(lambda: train(method, epochs=3))
    assert cost.seconds == pytest.approx(really, rel=0.1)
    assert not cost.estimated and cost.memory_mib > work.data_mib


@pytest.mark.parametrize("method", METHODS)
def test_fewer_images_give_about_the_same(
    counting, method, tiny_run, tiny_values, monkeypatch
) -> None:
    params = check(tiny_values)
    images = {"target": Splits(train=192, test=48), "origin": Splits(train=99, test=36)}
    work = of_run(params, tiny_run(method, epochs=3, buffer=32), images)
    small = timing.cost(params, work, CPU).seconds
    monkeypatch.setitem(timing.STEPS, "cpu", 1000)
    whole = timing.cost(params, work, CPU).seconds
    assert small == pytest.approx(whole, rel=0.3)
    monkeypatch.setattr(timing, "AFFORDABLE", 4 * work.per_image)  # and smaller batches
    assert timing.cost(params, work, CPU).seconds == pytest.approx(whole, rel=0.3)


def test_pretraining_is_forecast_to_do_what_it_does(
    counting, tiny_values, tiny_run, tiny_source, tmp_path
) -> None:
    tiny_values["sources"]["origin"]["pretraining"]["epochs"] = 7
    params = check(tiny_values)
    work = of_run(params, pretraining(params, "origin", tiny_run("twf")), IMAGES)
    method = learning.supervised(params.sources["origin"], params.datasets["origin"], CPU)
    keeper = Keeper(tmp_path / "state.safetensors", {}, math.inf)
    steps = executed("plain", method)
    really = passed(lambda: learning.train(steps, tiny_source, keeper, lambda *_: None))
    # a run evaluates twice, pretraining once, after `train`
    assert timing.cost(params, work, CPU).seconds == pytest.approx(really + 12, rel=0.1)


@pytest.mark.parametrize(
    ("change", "images", "tested", "source"),
    [
        ({}, 22, 16, None),
        ({"held_out": 0.25}, 33 // 2, 11, None),  # of the training images
        ({"probes": True, "source_data": "origin"}, 22, 16, IMAGES["origin"]),
    ],
)
def test_images_of_a_task_and_of_evaluations(
    tiny_run, tiny_values, change, images, tested, source
) -> None:
    work = of_run(check(tiny_values), tiny_run("er", **change), IMAGES)
    assert (work.images, work.tested, work.source) == (images, tested, source)


def test_batches_are_smaller_where_memory_is_short(tiny_run, tiny_values, monkeypatch) -> None:
    asked, params = [], check(tiny_values)

    def short(params, work: Work, small: Work, *_: object) -> tuple[float, float, float]:
        asked.append(small.run.batch_size)
        if small.run.batch_size > most:
            raise torch.OutOfMemoryError
        return 1.0, 50.0, 60.0

    monkeypatch.setattr(timing, "_timed", short)
    work, most = of_run(params, tiny_run("er", batch_size=16), IMAGES), 4
    cost = timing.cost(params, work, CPU)
    assert asked == [16, 8, 4]
    assert cost.memory_mib == pytest.approx(50 + 4 * 10 + work.data_mib)
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        timing.cost(params, work, CPU)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"seed": 1}, True),
        ({"pretrained": False}, True),
        ({"hyperparameters": {"tau": 0.1}}, True),
        ({"hyperparameters": {"chunks": 1}}, False),
        ({"buffer": 8}, False),
        ({"precision": "bf16"}, False),
        ({"epochs": 3}, False),
        ({"held_out": 0.5}, False),
        ({"fidelity": {"F11": "paper"}}, False),
    ],
)
def test_runs_are_of_one_kind_where_all_that_takes_time_is_the_same(
    tiny_run, tiny_values, change, same
) -> None:
    params = check(tiny_values)
    first, second = (of_run(params, tiny_run("co2l", **c), IMAGES).kind for c in ({}, change))
    assert (first == second) == same
