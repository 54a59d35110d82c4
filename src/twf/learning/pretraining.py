"""Pretraining: supervised training of a network on its source, the start of every run."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.data.store import Dataset
from twf.learning.augmentation import Augment
from twf.learning.evaluation.accuracy import to_device
from twf.learning.learner import Learner
from twf.learning.loop import Advance, Keeper
from twf.learning.methods.base import Batch, Method, Step
from twf.learning.models.resnet import ResNet
from twf.learning.precision import used
from twf.learning.randomness import Generators, seeded
from twf.learning.sgd import batches, cosine, sgd_step
from twf.learning.state import capture, fill, restore
from twf.learning.step import Plain
from twf.study.params import Dataset as DatasetParams
from twf.study.params import Pretraining, Source


class DivergedError(Exception):
    """The loss is not finite; its argument is the epoch, from 0."""


class Supervised(Method[Pretraining]):
    """Cross-entropy on a source's images, by SGD with momentum: one task of all classes."""

    def setup(self) -> None:
        self.velocity = [torch.zeros_like(p) for p in self.learner.network.parameters()]

    def learning_rate(self, epoch: float) -> float:
        recipe = self.hyperparameters
        if recipe.schedule == "constant":
            return recipe.lr
        return cosine(epoch, recipe.epochs, recipe.lr, 0.0)

    def loss(self, batch: Batch) -> Step:
        learner = self.learner
        inputs = learner.augment(batch.images, learner.generators["augmentation"])
        return Step({"cross-entropy": F.cross_entropy(learner.network(inputs), batch.labels)})

    def update(self, parameters: list[nn.Parameter], rate: float | Tensor) -> None:
        recipe = self.hyperparameters
        sgd_step(parameters, rate, self.velocity, recipe.momentum, recipe.weight_decay)


def supervised(source: Source, data: DatasetParams, device: torch.device) -> Supervised:
    """What trains the network of a source on its data, at its start."""
    recipe = source.pretraining
    assert recipe is not None  # it is trained here
    with seeded(recipe.seed, "network"):
        network = ResNet(source.network, data.classes)
    learner = Learner(
        network=network.to(device, memory_format=torch.channels_last),  # type: ignore[call-overload]
        augment=Augment(data.augmentation, device),
        generators=Generators(recipe.seed, device),
        device=device,
        classes=data.classes,
        tasks=1,
        batch_size=recipe.batch_size,
        epochs=recipe.epochs,
        buffer=None,
        image_size=data.size,
        fidelity={},
        precision=used(recipe.precision, device),
    )
    return Supervised(learner, recipe)


def train(steps: Plain, dataset: Dataset, keeper: Keeper, advance: Advance) -> None:
    """Train the network on the source's images, from where `keeper` has saved it.

    Raises `DivergedError` where the mean loss of an epoch is not finite.
    """
    method = steps.method
    learner = method.learner
    images = to_device(dataset.train_images, learner.device)
    labels = dataset.train_labels.to(learner.device)
    place: dict[str, Any] = {"epoch": 0, "step": 0, "order": None, "total": None}

    def state() -> dict[str, Any]:
        return {"run": capture(method), "place": place}

    if (saved := keeper.load()) is not None:
        values, tensors = saved
        restore(method, values["run"], tensors)
        place = fill(None, values["place"], tensors, learner.device)
        advance(place["epoch"], "resumed", place["step"])
    steps.begin(images, labels)
    while place["epoch"] < learner.epochs:
        learner.network.train()
        if place["order"] is None:
            place["order"] = learner.generators["order"].permutation(len(images))
            place["total"] = torch.zeros((), device=learner.device)
        positions = batches(place["order"], learner.batch_size)
        while place["step"] < len(positions):
            rate = method.learning_rate(place["epoch"] + place["step"] / len(positions))
            terms = steps.step(positions[place["step"]], rate)
            place["total"] += terms["cross-entropy"]
            place["step"] += 1
            keeper.pause(state)
        mean = place["total"].item() / len(positions)
        if not math.isfinite(mean):
            raise DivergedError(place["epoch"])
        place = {"epoch": place["epoch"] + 1, "step": 0, "order": None, "total": None}
        advance(1, f"loss {mean:.3f}")
