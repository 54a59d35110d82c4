"""Runs of the study with random images and weights: what is measured needs no data set.

A step's time depends on shapes alone, and these are those of `params.yaml`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from twf.data.store import Dataset
from twf.errors import UserError
from twf.methods import make
from twf.methods.base import Method, Task
from twf.models.resnet import ResNet
from twf.params import Params
from twf.study import Run, expand
from twf.training import loop
from twf.training.checkpoints import Checkpoint
from twf.training.randomness import seeded


def planned(params: Params, benchmark: str, method: str) -> Run:
    """The first run of a method on a benchmark in any study, with one epoch per task."""
    for name, study in params.studies.items():
        if study.winners is not None:  # a search gives its hyperparameters, never its shapes
            continue
        for run in expand(params, name).runs.values():
            if run.benchmark == benchmark and run.method == method:
                return run.model_copy(update={"epochs": 1})
    raise UserError(f"no study of params.yaml has a run of {method} on {benchmark}")


def batch_size(run: Run) -> int:
    """Stream images in a step."""
    return int(run.hyperparameters.get("batch_size", run.batch_size))


def random_images(count: int, side: int) -> Tensor:
    """uint8 `[count, side, side, 3]`."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, side, side, 3)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def random_dataset(classes: int, per_class: int, side: int) -> Dataset:
    """Random images to train on, which are those to test on too."""
    images = random_images(per_class * classes, side)
    labels = torch.arange(classes).repeat(per_class)
    names = [str(label) for label in range(classes)]
    return Dataset("random", names, images, labels, images, labels, "", "")


def random_checkpoint(params: Params, run: Run) -> Checkpoint:
    """In place of a run's source: a network as it is initialised, over as many classes."""
    data = params.sources[run.source].data
    with seeded(0, "benchmark"):
        network = ResNet(run.network, 1000 if data is None else params.datasets[data].classes)
    return Checkpoint(network.state_dict(), about={}, sha256="")


def method_of(params: Params, run: Run, device: torch.device) -> Method[Any]:
    """The method of a run, made by the functions that training calls."""
    dataset = random_dataset(run.classes, 1, params.datasets[run.data].size)
    source = None
    if run.source_data is not None:
        origin = params.datasets[run.source_data]
        source = random_dataset(origin.classes, 1, origin.size)
    learner = loop.make_learner(run, dataset, source, random_checkpoint(params, run), device)
    return make(run.method, learner, run.hyperparameters)


def random_task(params: Params, run: Run, number: int, device: torch.device) -> Task:
    """A task with one batch of random images."""
    count, each = batch_size(run), run.classes // run.tasks
    images = random_images(count, params.datasets[run.data].size).permute(0, 3, 1, 2).contiguous()
    labels = number * each + torch.arange(count) % each
    return Task(number, images.to(device), labels.to(device))
