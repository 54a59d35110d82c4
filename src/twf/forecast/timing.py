"""Seconds and memory of the parts of a run, by the functions that training calls.

Images and weights are random: a step's time depends on shapes alone, and no data need be there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from twf.data.store import Dataset
from twf.forecast.work import PRETRAINING, Cost, Work, batch_size
from twf.jobs.run import peak_memory_mib
from twf.learning import loop
from twf.learning.evaluation.accuracy import all_logits
from twf.learning.methods import make
from twf.learning.methods.base import Method, Task
from twf.learning.models.resnet import ResNet
from twf.learning.precision import set_precision
from twf.learning.pretraining import supervised
from twf.learning.randomness import seeded
from twf.learning.step import Plain, executed
from twf.study import Run
from twf.study.params import Params

ENOUGH = {"cpu": 4e5, "cuda": 5e7}  # images of a task, each times `Work.per_image`
BUDGET = 0.3  # seconds of steps; one that takes longer is the only one


def cost(params: Params, work: Work, device: torch.device, execution: str = "plain") -> Cost:
    """What a run takes, timed on few of its images, and with smaller batches where memory is short.

    On a CPU large networks get small batches anyhow: an image's time hardly depends on their size.
    What a process held before counts for its memory there, so call it in a fresh one.
    """
    fewest = 2 if device.type == "cpu" and execution == "plain" else batch_size(work.run)
    images = min(work.images, max(fewest, int(ENOUGH[device.type] / work.per_image)))
    while True:
        try:
            return _cost(params, work, device, execution, images)
        except torch.OutOfMemoryError:
            if images < 4:
                raise
        images //= 2


def _cost(params: Params, work: Work, device: torch.device, execution: str, images: int) -> Cost:
    """Two tasks of so many images with a buffer in proportion, as the loop trains on them."""
    set_precision(work.run.precision, device)
    torch.zeros(1, device=device)  # a GPU is set up before anything is timed
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    full = batch_size(work.run)
    share, batch = images / work.images, min(full, images)
    change: dict[str, Any] = {"classes": 2 * work.run.tasks, "batch_size": batch}
    if work.run.buffer:
        change["buffer"] = max(4, ceil(share * work.run.buffer))  # one for each class
    if hasattr(work.run.hyperparameters, "batch_size"):
        change["hyperparameters"] = work.run.hyperparameters.changed({"batch_size": batch})
    run, made = work.run.model_copy(update=change), list[Method[Any]]()
    origin = ceil(share * work.source_images)
    setup = _seconds(lambda: made.append(method_of(params, run, device, origin)), device)
    method, held = made[0], peak_memory_mib(device)
    steps, times = executed(execution, method), []
    for number in range(min(2, run.phases)):
        task = random_task(params, run, number, device, images)
        for module in method.modules():
            module.train()
        begin = _seconds(lambda: method.begin_task(task), device)  # noqa: B023 - called at once
        training_set = method.training_set(task)
        steps.begin(*training_set)
        step = step_of(steps, training_set[0])
        for _ in range(0 if device.type == "cpu" and execution == "plain" else 3):
            step()  # a first step chooses algorithms or is plain, the next ones compile or capture
        in_step = _seconds(step, device, BUDGET) / batch
        while method.buffer is not None and int(method.buffer.filled) < method.buffer.size:
            method.buffer.insert(**method.buffer.draw(batch))  # as the task's other steps would
        end = _seconds(lambda: method.end_task(task), device)  # noqa: B023
        times.append((in_step, begin, end))
    method.learner.network.eval()
    augment = method.learner.augment
    evaluation = _seconds(lambda: all_logits(method.logits, augment, task.images), device)

    (first, _, _), (later, begin, end) = times[0], times[-1]
    joined = (len(training_set[0]) - images) / (run.buffer or 1)  # with the task's images
    kept = [min(work.run.buffer or 0, number * work.images) for number in range(1, run.phases)]
    later_images = sum((work.images + joined * rows) // full * full for rows in kept)
    memory = peak_memory_mib(device)
    return Cost(
        seconds=setup / (share if origin else 1)
        + run.epochs * (work.images // full * full * first + later_images * later)
        + ((run.phases - 1) * begin + run.phases * end) / share
        + work.evaluated * evaluation / images,
        memory_mib=held + (memory - held) * full / batch + work.data_mib,
        basis="timed" if batch == full else f"timed ({batch} of {full} images a step)",
    )


def _seconds(work: Callable[[], object], device: torch.device, budget: float = 0.0) -> float:
    """The seconds of a call: the mean over a budget, without the first where there are others.

    Where a single thread does the work it is the processor's time, without what others did to it.
    """
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    times: list[float] = []
    while not times or sum(times) < budget:
        start = clock()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(clock() - start)
    return mean(times[1:] or times)


def random_images(count: int, side: int) -> Tensor:
    """uint8 `[count, side, side, 3]`."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, side, side, 3)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def random_dataset(classes: int, count: int, side: int) -> Dataset:
    """Random images to train on, which are those to test on too."""
    images, labels = random_images(count, side), torch.arange(count) % classes
    return Dataset("random", [""] * classes, images, labels, images, labels, "", "")


def method_of(
    params: Params, run: Run, device: torch.device, source_images: int = 1
) -> Method[Any]:
    """The method of a run, or of `pretraining`, made by the functions that training calls."""
    source, size = params.sources[run.source], params.datasets[run.data].size
    if run.method == PRETRAINING:
        assert source.pretraining is not None
        recipe = source.pretraining.model_copy(update={"batch_size": run.batch_size})
        source = source.model_copy(update={"pretraining": recipe})
        return supervised(source, params.datasets[run.data], device)
    origin = None if source.data is None else params.datasets[source.data]
    with seeded(0, "random checkpoint"):
        network = ResNet(run.network, 1000 if origin is None else origin.classes)
    images = None
    if run.source_data is not None and origin is not None:
        images = random_dataset(origin.classes, source_images, origin.size)
    dataset = random_dataset(run.classes, 1, size)
    learner = loop.make_learner(run, dataset, images, network.state_dict(), device)
    return make(run.method, learner, run.hyperparameters)


def random_task(
    params: Params, run: Run, number: int, device: torch.device, count: int | None = None
) -> Task:
    """A task of `count` random images; of a batch, or one of each class where that is more."""
    each = run.classes // run.tasks
    count = max(batch_size(run), each) if count is None else count
    images = random_images(count, params.datasets[run.data].size).permute(0, 3, 1, 2).contiguous()
    labels = number * each + torch.arange(count) % each
    return Task(number, images.to(device), labels.to(device))


def step_of(steps: Plain, images: Tensor) -> Callable[[], object]:
    """A step on a random batch of these images, as an epoch does it."""
    method = steps.method

    def step() -> None:
        order = method.learner.generators["order"].permutation(len(images))
        steps.step(order[: method.batch_size], method.learning_rate(0.0))

    return step
