"""Seconds and memory of the parts of a run, by the functions that training calls.

Images and weights are random: a step's time depends on shapes alone, and no data need be there. In
a process of its own: it sets the precision, and what the process held counts for the memory.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twf.data.store import Dataset
from twf.forecast.work import PRETRAINING, Cost, Work, batch_size, network_mib
from twf.gpus import cpu
from twf.jobs.run import peak_memory_mib
from twf.learning import loop
from twf.learning.evaluation.accuracy import all_logits, to_device
from twf.learning.methods import make
from twf.learning.methods.base import Method, Task
from twf.learning.models.resnet import ResNet
from twf.learning.precision import set_precision
from twf.learning.pretraining import supervised
from twf.learning.randomness import seeded
from twf.learning.step import Plain, executed
from twf.study import Run
from twf.study.params import Network, Params, Precision, Pretraining, Source
from twf.study.types import Strict

Amount = NDArray[np.float64]

ENOUGH = {"cpu": 4e5, "cuda": 5e7}  # images of a task, each times `Work.per_image`
BUDGET = 0.3  # seconds of steps; one that takes longer is the only one
NARROW, SIDE = Network(architecture="resnet18", width=4), 16  # a network to count passes of
PASSES: dict[object, tuple[Amount, float, float]] = {}  # `_pass_costs` that are known


def cost(params: Params, work: Work, device: torch.device, execution: str = "plain") -> Cost:
    """What a run takes, timed on few of its images, and with smaller batches where memory is short.

    On a CPU, where a batch of a large network takes long, by its passes (`_by_passes`).
    """
    full = batch_size(work.run)
    if device.type == "cpu" and full * work.per_image > ENOUGH["cpu"]:
        return _by_passes(params, work, device, execution)
    images = min(work.images, max(_fewest(work), int(ENOUGH[device.type] / work.per_image)))
    while True:
        try:
            seconds, _, memory = _whole(params, work, device, execution, images, _seconds)
        except torch.OutOfMemoryError:
            if images < 4:
                raise
            images //= 2
            continue
        batch = min(full, images)
        basis = "timed" if batch == full else f"timed ({batch} of {full} images a step)"
        return Cost(seconds=seconds, memory_mib=memory + work.data_mib, basis=basis)


def _fewest(work: Work) -> int:
    """The images of a task that fill a batch, from the stream and from a buffer in proportion."""
    return ceil(batch_size(work.run) * max(1, work.images / (work.run.buffer or work.images)))


def _by_passes(params: Params, work: Work, device: torch.device, execution: str) -> Cost:
    """The images that pass networks in a run, each at the time of one in plain training.

    They are counted in the same run of a narrow network on small images. What a method does beside
    them is not in it.
    """
    small = params.model_copy(
        update={
            "datasets": _each(params.datasets, size=SIDE),
            "sources": _each(params.sources, network=NARROW),
        }
    )
    narrow = replace(work, run=work.run.model_copy(update={"network": NARROW}))
    batch, images = batch_size(work.run), min(work.images, _fewest(work))
    passed, in_step, _ = _whole(small, narrow, device, "plain", images, _passed)
    place = (work.network, device, execution)
    if place not in PASSES:
        PASSES[place] = _pass_costs(params, work, device, execution)
    seconds, memory, each = PASSES[place]
    return Cost(
        seconds=passed @ seconds,
        memory_mib=memory + each * in_step[0] * batch + work.data_mib,
        basis="passes",
    )


def _each(entries: Mapping[str, Strict], **changes: Any) -> dict[str, Strict]:
    """Each entry of `params.yaml` with these changes."""
    return {name: entry.model_copy(update=changes) for name, entry in entries.items()}


def _pass_costs(
    params: Params, work: Work, device: torch.device, execution: str
) -> tuple[Amount, float, float]:
    """Seconds of an image in a training step and of one without gradients, and MiB: held, an image.

    On a CPU an image's time hardly depends on the size of its batch, so that it is a small one.
    """
    network, side, precision = work.network
    _begin(precision, device)
    images = random_images(max(4, int(ENOUGH["cpu"] / work.per_image)), side)
    recipe = Pretraining(
        lr=0.01, epochs=1, batch_size=len(images), schedule="constant", precision=precision
    )
    source = Source(network=network, data=work.run.data, pretraining=recipe)
    method = supervised(source, params.datasets[work.run.data], device)
    held = peak_memory_mib(device) + network_mib(network)  # with the gradients
    steps, stored = executed(execution, method), to_device(images, device)
    steps.begin(stored, torch.arange(len(images), device=device) % 2)
    learned = _seconds(step_of(steps, stored), device, BUDGET)
    method.learner.network.eval()
    seen = _seconds(lambda: all_logits(method.logits, method.learner.augment, stored), device)
    each = max(0.0, peak_memory_mib(device) - held) / len(images)
    return np.array([learned, seen]) / len(images), held, each


def _begin(precision: Precision, device: torch.device) -> None:
    """Have the peak of memory count from here, and a GPU set up before anything is timed."""
    set_precision(precision, device)
    torch.compiler.reset()  # it compiles no function for more than a few methods
    gc.collect()
    torch.zeros(1, device=device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    else:
        cpu.forget_peak_memory()


def _whole(
    params: Params,
    work: Work,
    device: torch.device,
    execution: str,
    images: int,
    measure: Callable[..., Any],
) -> tuple[Any, Any, float]:
    """What `measure` gives of a run, of an image in its later steps, and the MiB held at once.

    It is of two tasks of so many images with a buffer in proportion, as the loop trains on them.
    """
    _begin(work.run.precision, device)
    full = batch_size(work.run)
    share, batch = images / work.images, min(full, images)
    change: dict[str, Any] = {"classes": 2 * work.run.tasks, "batch_size": batch}
    if work.run.buffer:
        change["buffer"] = max(4, ceil(share * work.run.buffer))  # one for each class
    if hasattr(work.run.hyperparameters, "batch_size"):
        change["hyperparameters"] = work.run.hyperparameters.changed({"batch_size": batch})
    run, made = work.run.model_copy(update=change), list[Method[Any]]()
    origin = ceil(share * work.source_images)
    setup = measure(lambda: made.append(method_of(params, run, device, origin)), device)
    method, held = made[0], peak_memory_mib(device)
    steps, amounts = executed(execution, method), []
    for number in range(min(2, run.phases)):
        task = random_task(params, run, number, device, images)
        for module in method.modules():
            module.train()
        begin = measure(lambda: method.begin_task(task), device)  # noqa: B023 - called at once
        training_set = method.training_set(task)
        steps.begin(*training_set)
        step = step_of(steps, training_set[0])
        for _ in range(0 if device.type == "cpu" and execution == "plain" else 3):
            step()  # a first step chooses algorithms or is plain, the next ones compile or capture
        in_step = measure(step, device, BUDGET) / batch
        while method.buffer is not None and int(method.buffer.filled) < method.buffer.size:
            method.buffer.insert(**method.buffer.draw(batch))  # as the task's other steps would
        end = measure(lambda: method.end_task(task), device)  # noqa: B023
        amounts.append((in_step, begin, end))
    method.learner.network.eval()
    augment = method.learner.augment
    evaluation = measure(lambda: all_logits(method.logits, augment, task.images), device)

    (first, _, _), (later, begin, end) = amounts[0], amounts[-1]
    joined = (len(training_set[0]) - images) / (run.buffer or 1)  # with the task's images
    kept = [min(work.run.buffer or 0, number * work.images) for number in range(1, run.phases)]
    later_images = sum((work.images + joined * rows) // full * full for rows in kept)
    amount = (
        setup / (share if origin else 1)
        + run.epochs * (work.images // full * full * first + later_images * later)
        + ((run.phases - 1) * begin + run.phases * end) / share
        + work.evaluated * evaluation / images
    )
    return amount, later, held + (peak_memory_mib(device) - held) * full / batch


def _passed(work: Callable[[], object], device: torch.device, budget: float = 0.0) -> Amount:
    """How many images pass a network in a call, with gradients and without; float `[2]`.

    Of steps the second counts: the first has no replay.
    """
    found = np.zeros(2)

    def count(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, torch.nn.Conv2d) and module.in_channels == 3:
            found[0 if torch.is_grad_enabled() else 1] += len(inputs[0])

    if budget:
        work()
    handle = torch.nn.modules.module.register_module_forward_pre_hook(count)
    work()
    handle.remove()
    return found


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
    return Dataset([""] * classes, images, labels, images, labels, "", "")


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
