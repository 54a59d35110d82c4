"""What is timed is what training does, as often as training does it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from twf.data.registry import Splits
from twf.forecast import timing
from twf.forecast.disk import network_mib
from twf.forecast.forecast import pretraining
from twf.jobs.resume import Keeper
from twf.learning import pretraining as learning
from twf.learning.models import resnet
from twf.learning.models.convolution import Convolution
from twf.learning.step import executed
from twf.study.methods import METHODS
from twf.study.reading import check

CPU = torch.device("cpu")
IMAGES = {"target": Splits(train=44, test=16), "origin": Splits(train=33, test=12)}


class Shortcut(nn.Module):
    """A block without its branch."""

    expansion = 1

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.shortcut = Convolution(channels_in, channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second is an image that passes a network, whose blocks are as cheap as can be."""
    images = 0

    def count(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        nonlocal images
        if isinstance(module, torch.nn.Conv2d) and module.in_channels == 3:
            images += len(inputs[0])

    monkeypatch.setattr(resnet, "BasicBlock", Shortcut)
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
    counting, method, train, tiny_run, tiny_values, monkeypatch
) -> None:
    monkeypatch.setitem(timing.STEPS, "cpu", 4)
    found = timing.seconds(check(tiny_values), tiny_run(method, epochs=3), IMAGES, CPU)
    assert found == pytest.approx(passed(lambda: train(method, epochs=3)), rel=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_fewer_images_give_about_the_same(
    counting, method, tiny_run, tiny_values, monkeypatch
) -> None:
    params, run = check(tiny_values), tiny_run(method, epochs=3, buffer=32)
    images = {"target": Splits(train=96, test=24), "origin": Splits(train=51, test=18)}
    few = timing.seconds(params, run, images, CPU)
    monkeypatch.setitem(timing.STEPS, "cpu", 1000)
    whole = timing.seconds(params, run, images, CPU)
    monkeypatch.setitem(timing.STEPS, "cpu", 1)
    monkeypatch.setattr(timing, "AFFORDABLE", 4 * 16**2 * network_mib(run.network))
    smaller = timing.seconds(params, run, images, CPU)  # batches of 4
    assert few == pytest.approx(whole, rel=0.3)
    assert smaller == pytest.approx(whole, rel=0.3)


def test_pretraining_is_forecast_to_do_what_it_does(
    counting, tiny_values, tiny_run, tiny_source, tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(timing.STEPS, "cpu", 4)
    tiny_values["sources"]["origin"]["pretraining"]["epochs"] = 7
    params = check(tiny_values)
    method = learning.supervised(params.sources["origin"], params.datasets["origin"], CPU)
    keeper = Keeper(tmp_path / "state.safetensors", {}, math.inf)
    steps = executed("plain", method)
    really = passed(lambda: learning.train(steps, tiny_source, keeper, lambda *_: None))
    run = pretraining(params, "origin", like=tiny_run("twf"))
    # a run evaluates twice, pretraining once, after `train`
    assert timing.seconds(params, run, IMAGES, CPU) == pytest.approx(really + 12, rel=0.1)


@pytest.mark.parametrize("share", [None, 0.5])
def test_a_trial_trains_on_what_is_not_held_out(counting, tiny_run, tiny_values, share) -> None:
    run = tiny_run("finetune", held_out=share, epochs=10)
    images = {"target": Splits(train=640, test=16)}
    found = timing.seconds(check(tiny_values), run, images, CPU)
    trained, tested = (640, 16) if share is None else (320, 320)
    assert found == pytest.approx(10 * trained + 3 * tested, rel=0.1)
