"""The golden objectives on given logits, by the very `Method.loss` that training calls.

A stub network looks up the logits of an image by its pixels: images 0 to 11 are the stream, 12 to
23 the replay. So a method that asks for the wrong images, or mixes up their labels, shows too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from twf.data.augmentation import Placement
from twf.hyperparameters import TwfHyperparameters
from twf.methods import make
from twf.methods.base import Batch, Learner, Method, Task
from twf.methods.twf import Twf
from twf.models.gates import PropagationLoss
from twf.training.randomness import Generators

SIDE = 4
CPU = torch.device("cpu")


class LookUp(nn.Module):
    """Gives each image its row of `logits`, by the value of its pixels."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.tap_channels = [4]
        self.logits = nn.Parameter(logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.taps(images)[-1])

    def taps(self, images: Tensor) -> list[Tensor]:
        return [images[:, :1].expand(-1, 4, SIDE, SIDE)]

    def classify(self, last_tap: Tensor) -> Tensor:
        return self.logits[last_tap[:, 0, 0, 0].long()]


class Identity:
    """In place of `Augment`: images stay what they are."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return images

    def place(self, count: int, generator: torch.Generator) -> Placement:
        nowhere = torch.zeros(count, dtype=torch.int64)
        return Placement(nowhere, nowhere, nowhere.bool())

    def at(self, images: Tensor, placement: Placement) -> Tensor:
        return images

    def masks_at(self, masks: Tensor, placement: Placement, image_size: int, size: int) -> Tensor:
        return masks


Losses = Callable[[str, dict[str, float]], dict[str, Tensor]]


@pytest.fixture
def losses(golden, dtype, monkeypatch) -> Losses:
    """`losses(method, hyperparameters)`: the terms of the golden case's stream batch."""
    case = golden("losses")
    stream, replay = len(case["labels"]), len(case["replay_labels"])
    images = torch.arange(stream + replay, dtype=torch.uint8)
    images = images.view(-1, 1, 1, 1).expand(-1, 3, SIDE, SIDE)
    per_task, task = int(case["classes_per_task"]), int(case["current_task"])
    classes = case["logits"].shape[1]

    def without_propagation(self: Any, student: Any, teacher: Any, labels: Tensor, stored: Any):
        """Feature propagation has golden numbers of its own."""
        return {}, [torch.zeros(len(labels), *shape) for shape in self.packer.shapes]

    def compute(name: str, hyperparameters: dict[str, float]) -> dict[str, Tensor]:
        learner = Learner(
            network=LookUp(torch.cat([case["logits"], case["replay_logits_now"]]).to(dtype)),
            augment=Identity(),
            generators=Generators(0, CPU),
            device=CPU,
            classes=classes,
            tasks=classes // per_task,
            batch_size=replay,
            epochs=1,
            buffer=replay,
            image_size=SIDE,
        )
        if name == "twf":
            monkeypatch.setattr(Twf, "_propagate", without_propagation)
        method: Method[Any] = make(name, learner, {"lr": 0.1} | hyperparameters)
        method.begin_task(Task(task, images[:stream], case["labels"]))
        if method.buffer is not None:
            # as many rows as a draw asks for, so that each draw gives them all
            rows = {"images": images[stream:], "labels": case["replay_labels"]}
            if name in ("derpp", "twf"):
                rows["logits"] = case["replay_logits_then"].to(dtype)
            if name == "twf":
                rows["masks"] = torch.zeros(replay, method.packer.bytes, dtype=torch.uint8)
            method.buffer.insert(**rows)
        return method.loss(Batch(images[:stream], case["labels"], torch.arange(stream))).terms

    return compute


@pytest.mark.parametrize("name", ["finetune", "joint"])
def test_golden_plain_cross_entropy(golden, losses, close, name):
    terms = losses(name, {})
    assert list(terms) == ["cross_entropy"]
    close(terms["cross_entropy"], golden("losses")[name])


def test_golden_er(golden, losses, close):
    """One mean over stream and replay together."""
    terms = losses("er", {})
    assert list(terms) == ["cross_entropy"]
    close(terms["cross_entropy"], golden("losses")["er"])


def test_golden_derpp(golden, losses, close):
    """Stream cross-entropy, 0.2 times logits' error, 0.5 times replay's cross-entropy."""
    terms = losses("derpp", {"alpha": 0.2, "beta": 0.5})
    case = golden("losses")
    assert list(terms) == ["stream", "replay_logits", "replay_labels"]
    close(sum(terms.values()), case["derpp_alpha02_beta05"])
    close(terms["stream"], case["finetune"])


def test_golden_twf(golden, losses, close):
    """The stream's cross-entropy over the current task's classes; replay's over those seen."""
    zero = {"lambda_diversity": 0.0, "lambda_fp": 0.0, "lambda_fp_replay": 0.0}
    terms = losses("twf", {"alpha": 0.3, "beta": 0.9} | zero)
    case = golden("losses")
    close(terms.pop("stream"), case["twf_stream_ce"])
    assert set(terms) == {"replay_logits", "replay_labels"}
    close(sum(terms.values()), case["twf_replay_alpha03_beta09"])


def test_twf_sums_its_propagation_over_taps_as_the_published_code_weights_it():
    """F14: everything of a tap is summed, averaged over taps, and multiplied by lambda_FP."""
    values = {"lambda_diversity": 0.3, "lambda_fp": 0.01, "lambda_fp_replay": 1.5}
    # three taps, whose modules give these terms
    parts = [(1.0, 10.0, 100.0), (2.0, 20.0, 200.0), (6.0, 60.0, 600.0)]
    gate = torch.zeros(2, 4, SIDE, SIDE)

    def module_giving(part):
        tensors = [torch.tensor(x) for x in part]
        return lambda *_: PropagationLoss(*tensors, gate)

    stub = SimpleNamespace(
        task=1,
        propagation=[module_giving(part) for part in parts],
        learner=SimpleNamespace(classes_per_task=2, generators={"gates": None}),
        hyperparameters=TwfHyperparameters(lr=0.1, alpha=0.1, beta=0.1, **values),
    )
    maps = [gate] * 3
    terms, stored = Twf._propagate(stub, maps, maps, torch.tensor([0, 2]), maps)
    assert terms["distance"].item() == pytest.approx(0.01 * 3.0)
    assert terms["mask_replay"].item() == pytest.approx(0.01 * 1.5 * 30.0)
    assert terms["diversity"].item() == pytest.approx(0.01 * 0.3 * 300.0)
    assert len(stored) == 3
