"""What is timed is what training does, as often as training does it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from twf.data.registry import Splits
from twf.forecast import timing
from twf.forecast.work import PRETRAINING, Work, of_run, pretraining
from twf.jobs.resume import Keeper
from twf.learning import pretraining as learning
from twf.learning.step import executed
from twf.study.methods import METHODS
from twf.study.reading import check

CPU = torch.device("cpu")
IMAGES = {"target": Splits(train=44, test=16), "origin": Splits(train=33, test=12)}


def passed(work: Callable[[], object]) -> int:
    """How many images pass the first layer of any network in a call."""
    images = 0

    def count(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        nonlocal images
        if isinstance(module, torch.nn.Conv2d) and module.in_channels == 3:
            images += len(inputs[0])

    handle = torch.nn.modules.module.register_module_forward_pre_hook(count)
    work()
    handle.remove()
    return images


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is an image that passes a network; of steps the last of three counts."""

    def images(work: Callable[[], object], device: torch.device, budget: float = 0.0) -> float:
        return [passed(work) for _ in range(3 if budget else 1)][-1]

    monkeypatch.setattr(timing, "_seconds", images)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_forecast_to_do_what_it_does(
    counting, method, train, tiny_run, tiny_values
) -> None:
    work = of_run(check(tiny_values), tiny_run(method, epochs=3), IMAGES)
    cost = timing.cost(check(tiny_values), work, CPU)
    really = passed(lambda: train(method, epochs=3))
    assert cost.seconds == pytest.approx(really, rel=0.1)
    assert cost.basis == "timed" and cost.memory_mib > work.data_mib


@pytest.mark.parametrize("method", [*METHODS, PRETRAINING])
def test_a_run_of_a_large_network_is_forecast_by_the_passes_of_a_narrow_one(
    counting, method, tiny_run, tiny_values, monkeypatch
) -> None:
    """Of a network of width 64 no more than four images are ever passed."""
    tiny_values["sources"]["origin"]["network"]["width"] = 64
    params = check(tiny_values)
    run = pretraining(params, "origin")
    if method != PRETRAINING:
        run = tiny_run(method, epochs=3, network=params.sources["origin"].network)
    work = of_run(params, run, IMAGES)
    directly = timing.cost(params, work, CPU)
    monkeypatch.setitem(timing.ENOUGH, "cpu", 1.0)
    monkeypatch.setattr(timing, "PASSES", {})
    widths: list[int] = []
    whole = timing._whole
    monkeypatch.setattr(
        timing,
        "_whole",
        lambda p, w, *rest: widths.append(w.run.network.width) or whole(p, w, *rest),
    )
    found = timing.cost(params, work, CPU)
    assert found.seconds == pytest.approx(directly.seconds, rel=0.1)
    assert (found.basis, widths) == ("passes", [4])
    assert found.memory_mib > work.data_mib


@pytest.mark.parametrize("method", ["lwf", "oewc", "icarl", "twf", "derpp-ewc"])
def test_fewer_images_give_about_the_same(
    counting, method, tiny_run, tiny_values, monkeypatch
) -> None:
    params = check(tiny_values)
    images = IMAGES | {"target": Splits(train=440, test=160)}
    work = of_run(params, tiny_run(method, epochs=3, buffer=64), images)
    whole = timing.cost(params, work, CPU).seconds
    monkeypatch.setitem(timing.ENOUGH, "cpu", 20 * work.per_image)
    assert timing.cost(params, work, CPU).seconds == pytest.approx(whole, rel=0.3)


def test_pretraining_is_forecast_to_do_what_it_does(
    counting, tiny_values, tiny_source, tmp_path
) -> None:
    tiny_values["sources"]["origin"]["pretraining"]["epochs"] = 7
    params = check(tiny_values)
    work = of_run(params, pretraining(params, "origin"), IMAGES)
    method = learning.supervised(params.sources["origin"], params.datasets["origin"], CPU)
    keeper = Keeper(tmp_path / "state.safetensors", {}, math.inf)
    steps = executed("plain", method)
    really = passed(lambda: learning.train(steps, tiny_source, keeper, lambda *_: None))
    assert work.run.method == PRETRAINING
    assert timing.cost(params, work, CPU).seconds == really + 12  # the test images


@pytest.mark.parametrize(
    ("change", "images", "evaluated"),
    [
        ({}, 22, 3 * 16),
        ({"held_out": 0.25}, 33 // 2, 3 * 11),  # of the training images
        ({"probes": True, "source_data": "origin"}, 22, 3 * (2 * 16 + 33 + 12)),
    ],
)
def test_images_of_a_task_and_of_evaluations(
    tiny_run, tiny_values, change, images, evaluated
) -> None:
    work = of_run(check(tiny_values), tiny_run("er", **change), IMAGES)
    assert (work.images, work.evaluated) == (images, evaluated)


def test_batches_are_smaller_where_memory_is_short(tiny_run, tiny_values, monkeypatch) -> None:
    asked = []

    def short(params, work: Work, device, execution, images: int, measure) -> tuple:
        asked.append(images)
        if images > 8:
            raise torch.OutOfMemoryError
        return float(images), 0.0, 1.0

    monkeypatch.setattr(timing, "_whole", short)
    work = replace(of_run(check(tiny_values), tiny_run("er"), IMAGES), images=33)
    assert (timing.cost(check(tiny_values), work, CPU).seconds, asked) == (8.0, [33, 16, 8])
    monkeypatch.setattr(timing, "_whole", lambda *_: short(*_[:-2], 9, _[-1]))
    with pytest.raises(torch.OutOfMemoryError):
        timing.cost(check(tiny_values), work, CPU)


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
