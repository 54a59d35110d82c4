"""Seconds of a run, by the loop that does it, on a few random images: no data need be there."""

from __future__ import annotations

import gc
import time
from math import ceil

import torch
from torch import Tensor

from twf.data.registry import Splits
from twf.data.store import Dataset
from twf.forecast.disk import network_mib
from twf.jobs.arithmetic import set_arithmetic
from twf.learning import loop
from twf.learning.methods import load
from twf.learning.methods.base import Method
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import seeded
from twf.learning.state import Tensors
from twf.study import Run
from twf.study.params import Params

STEPS = {"cpu": 1, "cuda": 20}  # of an epoch, at most
AFFORDABLE = 4e5  # images of a step on a CPU, each times its pixels and its network's MiB


def seconds(
    params: Params,
    run: Run,
    images: dict[str, Splits],
    device: torch.device,
    execution: str = "plain",
) -> float:
    """Seconds of a run on data sets of so many images, from few steps on two tasks of a class each.

    Every epoch takes what the last of the first phase, or of a later one, does, in proportion to
    its steps: before it, libraries choose algorithms or compile. What is done between epochs grows
    with the images. Where a step takes long on a CPU, its batch is smaller.
    """
    data, side, full = images[run.data], params.datasets[run.data].size, run.stream_batch
    held_out = round((run.held_out or 0) * data.train)
    each, tested, batch = (data.train - held_out) // run.phases, held_out or data.test, full
    if device.type == "cpu":
        batch = min(full, max(2, int(AFFORDABLE / (side**2 * network_mib(run.network)))))
    taken = max(batch, min(each, batch * STEPS[device.type]))
    share = taken / each
    joins = load(run.method).training_set is not Method.training_set  # it trains on the buffer too
    replayed = min(run.buffer or 0, each) if joins else 0
    few = max(2, ceil(share * replayed)) if replayed else 0
    values = dict(run.hyperparameters)
    counts = {"batch_size": batch, "fisher_images": ceil(share * values.get("fisher_images", 0))}
    counts = {name: number for name, number in counts.items() if name in values}
    small = run.model_copy(
        update={
            "tasks": min(2, run.tasks),
            "classes": min(2, run.tasks),
            "batch_size": batch,
            "buffer": run.buffer and (few or batch),
            "epochs": 2 if (device.type, execution) == ("cpu", "plain") else 3,
            "hyperparameters": run.hyperparameters.changed(counts),
        }
    )
    there = Splits(train=small.phases * taken, test=ceil(share * tested))
    source = images[run.source_data] if run.source_data is not None else None
    if source is not None:
        source = Splits(train=ceil(share * source.train), test=ceil(share * source.test))
    inputs = random_inputs(params, small, there, source)
    set_arithmetic(run.precision, execution, device)
    if device.type == "cuda":
        gc.collect()  # the memory that earlier runs held
    if execution.startswith("compiled"):
        torch.compiler.reset()  # it compiles no function for more than a few methods
    torch.zeros(1, device=device)
    start, nobody = time.perf_counter(), Nobody()
    outcome = loop.train(small, *inputs, device, nobody, nobody.advance, nobody, execution)
    together = time.perf_counter() - start
    epochs = [entry["seconds"] for entry in outcome.history]
    total = (together - sum(epochs)) / share * (run.phases + 1) / (small.phases + 1)
    for phase in range(run.phases):
        more, less = (replayed, few) if phase else (0, 0)
        passed = (each + more) // full * full / ((taken + less) // batch * batch)
        last = epochs[small.epochs * min(phase + 1, small.phases) - 1]
        total += run.epochs * last * passed
    return total


def random_inputs(
    params: Params, run: Run, images: Splits, source: Splits | None
) -> tuple[Dataset, Dataset | None, Tensors]:
    """A run's data, its source's, and the pretrained weights, all random, as `loop.train` asks."""
    data, origin = params.datasets[run.data], params.sources[run.source].data
    of_source, classes = None, 1000
    if origin is not None:
        classes = params.datasets[origin].classes
        if source is not None:
            of_source = _dataset(2, source, params.datasets[origin].size)
    with seeded(0, "random checkpoint"):
        weights = ResNet(run.network, classes).state_dict()
    return _dataset(run.classes, images, data.size), of_source, weights


class Nobody:
    """Keeps nothing of a run and tells no one."""

    def load(self) -> None: ...
    def pause(self, *_: object, **__: object) -> None: ...
    def update(self, *_: object) -> None: ...
    def advance(self, *_: object) -> None: ...


def _dataset(classes: int, images: Splits, side: int) -> Dataset:
    """Random images of so many classes, one of each at least."""
    train, test = (random_images(max(classes, n), side) for n in (images.train, images.test))
    of_train, of_test = (torch.arange(len(split)) % classes for split in (train, test))
    return Dataset([""] * classes, train, of_train, test, of_test, "", "")


def random_images(count: int, side: int) -> Tensor:
    """uint8 `[count, side, side, 3]`."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, side, side, 3), generator=generator, dtype=torch.uint8)
