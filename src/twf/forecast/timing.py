"""Seconds and memory of a run, by the loop that does it, on few random images.

A step's time depends on shapes alone, and no data need be there.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from math import ceil
from typing import Any

import torch
from torch import Tensor

from twf.data.registry import Splits
from twf.data.store import Dataset
from twf.forecast.work import Cost, Work, network_mib
from twf.gpus import cpu
from twf.jobs.arithmetic import set_arithmetic
from twf.jobs.run import peak_memory_mib
from twf.learning import loop
from twf.learning.methods import load
from twf.learning.methods.base import Method
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import seeded
from twf.learning.state import Tensors
from twf.study import Run
from twf.study.params import Params

AFFORDABLE = 4e5  # images of an epoch on a CPU, each times `Work.per_image`
STEPS = {"cpu": 4, "cuda": 20}  # of an epoch, at most


def cost(params: Params, work: Work, device: torch.device, execution: str = "plain") -> Cost:
    """What a run takes, timed on few of its images.

    Batches are smaller where one takes long on a CPU, and where memory is short.
    """
    batch = full = work.run.stream_batch
    steps = STEPS[device.type]
    if device.type == "cpu":
        affordable = int(AFFORDABLE / work.per_image)
        batch = min(full, max(2, affordable // 2 * 2))
        steps = min(steps, max(1, affordable // batch))
    while True:
        try:
            small = _smaller(work, batch, steps)
            seconds, held, memory = _timed(params, work, small, device, execution)
        except torch.OutOfMemoryError:
            if batch < 4:
                raise
            batch //= 2
            continue
        memory = held + max(0.0, memory - held) * full / batch + work.data_mib
        return Cost(seconds=seconds, memory_mib=memory)


def _smaller(work: Work, batch: int, steps: int) -> Work:
    """A run of at most two tasks, of a class each, with all else in proportion."""
    run, tasks = work.run, min(2, work.run.tasks)
    images = max(batch, min(batch * steps, work.images))
    share = images / work.images
    change: dict[str, Any] = {"tasks": tasks, "classes": tasks, "batch_size": batch}
    if run.buffer:
        least = tasks if _joins(run) else batch
        change["buffer"] = max(least, ceil(share * min(run.buffer, work.images)))
    hyperparameters = dict(run.hyperparameters)
    fisher = ceil(share * hyperparameters.get("fisher_images", 0))
    counts = {"batch_size": batch, "fisher_images": fisher}
    change["hyperparameters"] = run.hyperparameters.changed(
        {name: count for name, count in counts.items() if name in hyperparameters}
    )
    source = work.source
    if source is not None:
        source = Splits(train=ceil(share * source.train), test=ceil(share * source.test))
    return replace(
        work,
        run=run.model_copy(update=change),
        images=images,
        tested=ceil(share * work.tested),
        source=source,
    )


def _joins(run: Run) -> bool:
    """Whether a method replays images as part of a task's training set."""
    return load(run.method).training_set is not Method.training_set


def _timed(
    params: Params, work: Work, small: Work, device: torch.device, execution: str
) -> tuple[float, float, float]:
    """Seconds of a run by those of a smaller one, and the MiB that hold before it and at its peak.

    An epoch takes what the last of its phase does: before it, libraries choose algorithms or
    compile. What is done between epochs is taken to grow with the images.
    """
    epochs = 2 if (device.type, execution) == ("cpu", "plain") else 3
    run = small.run.model_copy(update={"epochs": epochs})
    images = Splits(train=run.phases * small.images, test=small.tested)
    inputs = random_inputs(params, run, images, small.source)
    held, nobody = _begin(work, device, execution), Nobody()
    held += 3 * network_mib(run.network)  # with gradients
    start, used = time.perf_counter(), time.process_time()
    history = loop.train(run, *inputs, device, nobody, nobody.advance, nobody, execution).history
    seconds, used = time.perf_counter() - start, time.process_time() - used

    between = seconds - sum(entry["seconds"] for entry in history)
    total = between * (work.run.phases + 1) / (run.phases + 1) * work.images / small.images
    last = {entry["phase"]: entry["seconds"] for entry in history}
    for phase in range(work.run.phases):
        each = last.get(min(phase, 1), last[0])
        total += work.run.epochs * each * _passed(work, phase) / _passed(small, phase)
    if (device.type, execution, torch.get_num_threads()) == ("cpu", "plain", 1):
        total *= used / seconds  # without what other processes did to it
    return total, held, peak_memory_mib(device)


def _passed(work: Work, phase: int) -> int:
    """Images that an epoch's steps go through."""
    replayed = min(work.run.buffer or 0, work.images) if phase and _joins(work.run) else 0
    full = work.run.stream_batch
    return (work.images + replayed) // full * full


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


def _begin(work: Work, device: torch.device, execution: str) -> float:
    """Have the peak of memory count from here, and a GPU set up; MiB that are held already."""
    set_arithmetic(work.run.precision, execution, device)
    torch.compiler.reset()  # it compiles no function for more than a few methods
    gc.collect()
    torch.zeros(1, device=device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    else:
        cpu.forget_peak_memory()
    return peak_memory_mib(device)


def _dataset(classes: int, images: Splits, side: int) -> Dataset:
    """Random images of so many classes, one of each at least."""
    train, test = (random_images(max(classes, n), side) for n in (images.train, images.test))
    of_train, of_test = (torch.arange(len(split)) % classes for split in (train, test))
    return Dataset([""] * classes, train, of_train, test, of_test, "", "")


def random_images(count: int, side: int) -> Tensor:
    """uint8 `[count, side, side, 3]`."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, side, side, 3)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
