"""The runs that are measured: those of `params.yaml`, on random images and weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from twf.data.store import Dataset
from twf.errors import UserError
from twf.learning import loop
from twf.learning.methods import make
from twf.learning.methods.base import Method, Task
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import seeded
from twf.learning.step import Plain
from twf.study import Run, expand
from twf.study.params import Params


def planned(params: Params, benchmark: str, method: str) -> Run:
    """The first run of a method on a benchmark in any study, with one epoch per task."""
    for name, study in params.studies.items():
        if (
            study.best_hyperparameters is not None
        ):  # a search gives its hyperparameters, never its shapes
            continue
        for run in expand(params, name).runs.values():
            if run.benchmark == benchmark and run.method == method:
                return run.model_copy(update={"epochs": 1})
    raise UserError(f"no study of params.yaml has a run of {method} on {benchmark}")


def method_of(params: Params, run: Run, device: torch.device) -> Method[Any]:
    """The method of a run, at its start."""
    source, origin = params.sources[run.source], None
    if run.source_data is not None:
        origin = _images(2, params.datasets[run.source_data].size)
    classes = params.datasets[source.data].classes if source.data is not None else 1000
    with seeded(0, "random checkpoint"):
        weights = ResNet(run.network, classes).state_dict()
    data = _images(run.classes, params.datasets[run.data].size)
    learner = loop.make_learner(run, data, origin, weights, device)
    return make(run.method, learner, run.hyperparameters)


def random_task(params: Params, run: Run, number: int, device: torch.device) -> Task:
    """A task of a batch of random images, or of one of each class where that is more."""
    each = run.classes // run.tasks
    count = max(run.stream_batch, each)
    images = random_images(count, params.datasets[run.data].size).permute(0, 3, 1, 2).contiguous()
    labels = number * each + torch.arange(count) % each
    return Task(number, images.to(device), labels.to(device))


def step_of(steps: Plain, images: Tensor) -> Callable[[], object]:
    """A step on a random batch of these images, as an epoch does it."""
    method = steps.method

    def step() -> None:
        order = method.learner.generators["order"].permutation(len(images))
        steps.step(order[: method.learner.batch_size], method.learning_rate(0.0))

    return step


def random_images(count: int, side: int) -> Tensor:
    """uint8 `[count, side, side, 3]`."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, side, side, 3), generator=generator, dtype=torch.uint8)


def _images(classes: int, side: int) -> Dataset:
    """A random image of each class, for training and for testing."""
    images, labels = random_images(classes, side), torch.arange(classes)
    return Dataset([""] * classes, images, labels, images, labels, "", "")


class Nobody:
    """Keeps nothing of a run and tells no one."""

    def load(self) -> None: ...
    def pause(self, *_: object, **__: object) -> None: ...
    def update(self, *_: object) -> None: ...
    def advance(self, *_: object) -> None: ...
