"""The golden objectives on given logits, by the very `Method.loss` that training calls.

A stub network looks up the logits of an image by its pixels: images 0 to 11 are the stream, 12 to
23 the replay. So a method that asks for the wrong images, or mixes up their labels, shows too.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from twf.learning.augmentation import Placement
from twf.learning.learner import Learner
from twf.learning.methods import make
from twf.learning.methods.base import Batch, Task
from twf.learning.methods.icarl import distilling_bce
from twf.learning.methods.oewc import diagonal_fisher, penalty
from twf.learning.models.contrast import asymmetric_supcon, relation_distillation
from twf.learning.models.propagation import Propagation
from twf.learning.models.resnet import parameters_of
from twf.learning.randomness import CPU, Generators, Random
from twf.learning.replay.herding import herd
from twf.study.methods import METHODS

SIDE = 4


class LookUp(nn.Module):
    """Gives each image its row of `logits`, by the value of its pixels."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.layer_channels = [4]
        self.logits = nn.Parameter(logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.layers(images)[-1])

    def layers(self, images: Tensor) -> list[Tensor]:
        return [images[:, :1].expand(-1, 4, SIDE, SIDE)]

    def classify(self, last_layer: Tensor) -> Tensor:
        return self.logits[last_layer[:, 0, 0, 0].long()]


class Identity:
    """In place of `Augment`: images stay what they are."""

    def __call__(self, images: Tensor, *_: Any) -> Tensor:
        return images

    at = masks_at = __call__

    def place(self, count: int, generator: Random) -> Placement:
        nowhere = torch.zeros(count, dtype=torch.int64)
        return Placement(nowhere, nowhere, nowhere.bool())


@pytest.fixture
def losses(golden, dtype) -> Callable[..., dict[str, Tensor]]:
    """`losses(method, **values)`: the terms of the golden case's stream batch.

    `values` are hyperparameters and switches; `prepare(method)` is called before the loss.
    """
    case = golden("losses")
    stream, replay = len(case["labels"]), len(case["replay_labels"])
    images = torch.arange(stream + replay, dtype=torch.uint8)
    images = images.view(-1, 1, 1, 1).expand(-1, 3, SIDE, SIDE)
    per_task, task = int(case["classes_per_task"]), int(case["current_task"])
    classes = case["logits"].shape[1]

    def compute(
        name: str, prepare: Callable[[Any], object] = lambda _: None, **values: Any
    ) -> dict[str, Tensor]:
        switches = dict.fromkeys(METHODS[name].switches, "published")
        switches |= {switch: values.pop(switch) for switch in switches.keys() & values.keys()}
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
            fidelity=switches,
        )
        method: Any = make(name, learner, METHODS[name].hyperparameters(lr=0.1, **values))
        if name == "lwf":
            method.task = task  # its start would train
        else:
            method.begin_task(Task(task, images[:stream], case["labels"]))
        if method.buffer is not None:
            # as many rows as a draw asks for, so that each draw gives them all
            rows = {"images": images[stream:], "labels": case["replay_labels"]}
            rows["logits"] = case["replay_logits_then"].to(dtype)
            if getattr(method, "propagation", None) is not None:
                rows["masks"] = torch.zeros(replay, method.propagation.packer.bytes).byte()
            method.buffer.insert(**rows)
        prepare(method)
        return method.loss(Batch(images[:stream], case["labels"], torch.arange(stream))).terms

    return compute


REPLAY_ALONE = {"lambda_diversity": 0.0, "lambda_fp": 0.0, "lambda_fp_replay": 0.0}
TWF = {"alpha": 0.3, "beta": 0.9} | REPLAY_ALONE  # propagation has golden numbers of its own


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("finetune", {}, {"cross_entropy": "finetune"}),
        ("joint", {}, {"cross_entropy": "joint"}),
        ("er", {}, {"cross_entropy": "er"}),  # one mean over stream and replay together
        # 0.2 times the logits' error, 0.5 times the replay's cross-entropy
        (
            "derpp",
            {"alpha": 0.2, "beta": 0.5},
            {"stream": "finetune", "all": "derpp_alpha02_beta05"},
        ),
        # the stream among the classes that compete, and the replay among all
        ("er-ace", {}, {"stream": "er_ace_stream", "all": "er_ace"}),
        # the stream over the current task's classes, the replay over those seen
        ("twf", TWF, {"stream": "twf_stream_ce", "replay": "twf_replay_alpha03_beta09"}),
        ("twf", TWF | {"F6": "paper"}, {"stream": "finetune"}),
    ],
)
def test_golden_rehearsal(golden, losses, close, name, values, expected):
    terms, case = losses(name, **values), golden("losses")
    sums = {"all": sum(terms.values())}
    sums["replay"] = sums["all"] - terms.get("stream", 0.0)
    for term, key in expected.items():
        close((terms | sums)[term], case[key])


def test_golden_lwf(golden, losses, close, dtype):
    """Cross-entropy over the classes seen, and the old network's answers at temperature 2."""
    case = golden("losses")
    answers = case["replay_logits_then"].to(dtype)
    values = {"alpha": 0.3, "tau": 2.0, "weight_decay": 0.0}
    terms = losses("lwf", lambda method: setattr(method, "answers", answers), **values)
    close(terms["distillation"] / 0.3, case["lwf_distillation_tau2"])
    close(sum(terms.values()), case["lwf_alpha03"])


def test_golden_icarl(golden, losses, close, dtype):
    """Binary cross-entropy against labels, and the old network's answers for the old classes.

    Without an old network the labels, here those of the first task, are all targets.
    """
    case = golden("losses")
    old = LookUp(case["replay_logits_then"].to(dtype))
    terms = losses("icarl", lambda method: setattr(method, "old", old), weight_decay=0.0)
    close(sum(terms.values()), case["icarl_third_task"])
    per_task = int(case["classes_per_task"])
    first = distilling_bce(case["logits"].to(dtype), case["labels"] % per_task, None, 0, per_task)
    close(first, case["icarl_first_task"])


def test_golden_co2l(golden, close, dtype):
    case = golden("co2l")
    now, then = (
        torch.cat([case[f"{when}projections_view{view}"] for view in (1, 2)]).to(dtype)
        for when in ("", "past_")
    )
    labels = case["labels"].repeat(2)
    current = torch.isin(labels, case["current_classes"])
    contrast = asymmetric_supcon(now, labels, current, float(case["temperature"]))
    close(contrast, case["asymmetric_supcon"])
    temperatures = float(case["current_temperature"]), float(case["past_temperature"])
    relation = relation_distillation(now, then, *temperatures)
    close(relation, case["instance_relation_distillation"])


def test_golden_oewc(golden, close, dtype):
    """The running Fisher information of a linear classifier after two tasks, and the penalty."""
    case = golden("oewc")
    network = nn.Linear(6, 4).to(dtype)

    def at(name: str) -> None:
        with torch.no_grad():
            network.weight.copy_(case[f"{name}_weight"])
            network.bias.copy_(case[f"{name}_bias"])

    at("task0")
    first = diagonal_fisher(network, case["task0_inputs"].to(dtype), case["task0_labels"])
    close(first, case["fisher_after_task0"])
    at("task1")
    second = diagonal_fisher(network, case["task1_inputs"].to(dtype), case["task1_labels"])
    running = case["gamma"] * first + second
    close(running, case["fisher_after_task1"])
    anchor = parameters_of(network).detach()
    at("new")
    close(penalty(network, running, anchor), case["penalty"])


def test_golden_herding(golden):
    features, order = golden("herding")["features"], golden("herding")["order"]
    assert torch.equal(herd(features, len(order)), order)
    every = herd(features, len(features) + 1)
    assert torch.equal(every[: len(order)], order) and len(set(every.tolist())) == len(features)


@pytest.mark.parametrize(("switch", "outer"), [("published", 0.01), ("paper", 1.0)])
def test_twf_weights_its_propagation_by_f14(losses, monkeypatch, switch, outer):
    """Published: mask replay and diversity are multiplied by lambda_FP too."""
    parts = *map(torch.tensor, (3.0, 30.0, 300.0)), torch.zeros(0)
    monkeypatch.setattr(Propagation, "forward", lambda *_: parts)
    weights = {"lambda_diversity": 0.3, "lambda_fp": 0.01, "lambda_fp_replay": 1.5}
    terms = losses("twf", **TWF | weights, F14=switch)
    assert terms["distance"].item() == pytest.approx(0.01 * 3.0)
    assert terms["mask_replay"].item() == pytest.approx(outer * 1.5 * 30.0)
    assert terms["diversity"].item() == pytest.approx(outer * 0.3 * 300.0)
