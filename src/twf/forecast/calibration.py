"""What the pieces of a run take, timed on random images and weights: no data need be there.

A step's time depends on shapes alone, and these are those of `params.yaml`. What is timed is made
by the functions that training calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from twf.data.store import Dataset
from twf.forecast.cost import PASSES, Timing, batch_size, passed, setup_images
from twf.jobs.checkpoints import Checkpoint
from twf.jobs.run import peak_memory_mib
from twf.learning import loop
from twf.learning.evaluation.accuracy import BATCH, all_logits
from twf.learning.methods import make
from twf.learning.methods.base import Method, Task
from twf.learning.models.resnet import ResNet
from twf.learning.precision import set_precision
from twf.learning.pretraining import supervised
from twf.learning.randomness import seeded
from twf.learning.state import Tensors, capture, flatten
from twf.learning.step import Plain, executed
from twf.study import Run
from twf.study.params import Execution, Params

BUDGET = 0.5  # seconds of timed calls, after a first
SLOW = 2.0  # seconds: a first call that takes longer is the only one


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
    with seeded(0, "random checkpoint"):
        network = ResNet(run.network, 1000 if data is None else params.datasets[data].classes)
    return Checkpoint(network.state_dict(), about={}, sha256="")


def method_of(params: Params, run: Run, device: torch.device) -> Method[Any]:
    """The method of a run, made by the functions that training calls."""
    dataset = random_dataset(run.classes, 1, params.datasets[run.data].size)
    source = None
    if run.source_data is not None:
        origin = params.datasets[run.source_data]
        source = random_dataset(origin.classes, 1, origin.size)
    learner = loop.make_learner(
        run, dataset, source, random_checkpoint(params, run).tensors, device
    )
    return make(run.method, learner, run.hyperparameters)


def random_task(params: Params, run: Run, number: int, device: torch.device) -> Task:
    """A task with one batch of random images, or an image of each class where that is more."""
    each = run.classes // run.tasks
    count = max(batch_size(run), each)
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


def calibrate(
    params: Params, run: Run, device: torch.device, execution: Execution = "plain"
) -> Timing:
    """Time two short tasks of a run, from setup to evaluation; where all is one task, that one.

    Steps are compiled and captured before their time counts.
    What a process held before counts for its memory on a CPU, so call it in a fresh one.
    """
    set_precision(run.precision)
    info, run = PASSES[run.method], run.model_copy(update={"epochs": 1})
    _warm_up(device)
    setup, method = _once(lambda: method_of(params, run, device), device)
    way = executed(execution, method)
    steps, begin, end = [], 0.0, 0.0
    for task in method.phases([random_task(params, run, n, device) for n in range(2)]):
        for module in method.modules():
            module.train()
        kept = _kept(method, task)
        took, _ = _once(lambda: method.begin_task(task), device)  # noqa: B023 - called at once
        begin = took / max(1, passed(info.begins_with, len(task.images), 1, kept))
        images, labels = method.training_set(task)
        way.begin(images, labels)
        steps.append(_seconds_per_step(way, images, device))
        took, _ = _once(lambda: method.end_task(task), device)  # noqa: B023
        end = took / max(1, passed(info.ends_with, len(task.images), 1, _kept(method, task)))
    method.learner.network.eval()
    count = len(task.images) if max(steps) > SLOW else BATCH
    tested = task.images[torch.arange(count, device=device) % len(task.images)]
    evaluation = seconds_per_call(
        lambda: all_logits(method.logits, method.learner.augment, tested), device
    )
    return Timing(
        setup=setup / _images_at_setup(method, run),
        first_steps=steps[0],
        later_steps=steps[-1],
        begin=begin if info.begins_with else 0.0,
        end=end if info.ends_with else 0.0,
        evaluation=evaluation / count,
        memory_mib=peak_memory_mib(device),
        state_mib=_mib(capture(method)),
        checkpoint_mib=_mib(random_checkpoint(params, run).tensors),
        device_mib=_device_mib(device),
    )


def calibrate_pretraining(
    params: Params, name: str, device: torch.device, execution: Execution = "plain"
) -> Timing:
    """Time a step of pretraining on a source, and its evaluation."""
    source = params.sources[name]
    assert source.data is not None and source.pretraining is not None  # `Source` holds this
    set_precision(source.pretraining.precision)
    _warm_up(device)
    data = params.datasets[source.data]
    setup, method = _once(lambda: supervised(source, data, device), device)
    network, augment = method.learner.network, method.learner.augment
    images = random_images(max(BATCH, method.batch_size), method.learner.image_size)
    images = images.permute(0, 3, 1, 2).contiguous().to(device)
    way = executed(execution, method)
    way.begin(images, torch.arange(len(images), device=device) % method.learner.classes)
    network.train()
    steps = _seconds_per_step(way, images, device)
    network.eval()
    evaluation = seconds_per_call(lambda: all_logits(network, augment, images[:BATCH]), device)
    return Timing(
        setup=setup,
        first_steps=steps,
        later_steps=0.0,
        begin=0.0,
        end=0.0,
        evaluation=evaluation / BATCH,
        memory_mib=peak_memory_mib(device),
        state_mib=_mib(capture(method)),
        checkpoint_mib=_mib(network.state_dict()),
        device_mib=_device_mib(device),
    )


def _seconds_per_step(way: Plain, images: Tensor, device: torch.device) -> float:
    step = step_of(way, images)
    if type(way) is not Plain:
        for _ in range(2):  # a run's first step is plain
            step()
    return seconds_per_call(step, device)


def seconds_per_call(work: Callable[[], object], device: torch.device) -> float:
    """The median over pairs of calls, until `BUDGET` is spent; a slow one is called just once."""
    first, _ = _once(work, device)
    if first > SLOW:
        return first
    pairs: list[float] = []
    start = time.monotonic()
    while not pairs or time.monotonic() - start < BUDGET:
        pairs.append(_once(lambda: (work(), work()), device)[0])
    return median(pairs) / 2


def _once(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """The seconds of one call, and what it gives.

    Where a single thread does the work it is the processor's time, without what others did to it.
    """
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    start = clock()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start, result


def _warm_up(device: torch.device) -> None:
    """Let a GPU be set up before anything is timed."""
    torch.zeros(1, device=device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _images_at_setup(method: Method[Any], run: Run) -> int:
    """Those that the setup went through: the random source has few."""
    source = method.learner.source
    return setup_images(run) if source is None else min(setup_images(run), len(source.images))


def _kept(method: Method[Any], task: Task) -> int:
    """How many images are in the buffer."""
    if method.buffer is not None:
        return int(method.buffer.filled)
    return len(method.training_set(task)[0]) - len(task.images)


def _mib(state: Any) -> float:
    """What a state takes when it is saved."""
    tensors: Tensors = {}
    flatten(state, tensors)
    return sum(tensor.nbytes for tensor in tensors.values()) / 2**20


def _device_mib(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    return torch.cuda.get_device_properties(device).total_memory / 2**20
