"""What a run costs: how often each piece of its work is done, times what the piece takes.

The pieces are timed by `twf.forecast.calibration`; this is the arithmetic. No torch here.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from twf.data.registry import Splits
from twf.study import Run
from twf.study.methods import METHODS
from twf.study.params import Network, Params, Pretraining
from twf.study.types import Strict

Passed = Literal["task", "task each epoch", "buffer"]  # images


class Passes(NamedTuple):
    """What an epoch goes through beside the task's images, and what hooks pass through a network.

    `setup` passes as many images as a hyperparameter says, `begin_task` (from the second task on)
    and `end_task` the sum of these.
    """

    joins_buffer: bool = False  # epochs go through the buffer's images too
    setup_images: str | None = None
    begins_with: tuple[Passed, ...] = ()
    ends_with: tuple[Passed, ...] = ()


PASSES = dict.fromkeys(METHODS, Passes()) | {
    "oewc": Passes(ends_with=("task",)),
    "lwf": Passes(begins_with=("task", "task each epoch")),
    "co2l": Passes(joins_buffer=True, ends_with=("buffer",)),
    "icarl": Passes(joins_buffer=True, ends_with=("task", "buffer")),
    "derpp-ewc": Passes(setup_images="fisher_images"),
    "twf": Passes(ends_with=("buffer",)),
}

# Values of each network at width 64 without its head; their number grows as the width's square.
VALUES = {"resnet18": 11.17e6, "resnet50": 23.5e6}


class Work(Strict):
    """How often each piece of a run's work is done."""

    setup: int = 1  # the images that it goes through, or once
    first_steps: int = 0  # of the first task, with little to replay
    later_steps: int = 0
    begin: int = 0  # images that the hook before a task goes through
    end: int = 0  # images that the hook after a task goes through
    evaluation: int = 0  # images


class Timing(Strict):
    """What each piece takes on one device, in seconds, and what a run holds, in MiB."""

    setup: float
    first_steps: float
    later_steps: float
    begin: float
    end: float
    evaluation: float
    memory_mib: float  # at the most, data sets left out
    state_mib: float
    checkpoint_mib: float  # of the network that it starts from, or makes
    device_mib: float | None  # the memory of the GPU


def seconds(work: Work, timing: Timing) -> float:
    """What the work takes."""
    return sum(getattr(work, piece) * getattr(timing, piece) for piece in Work.model_fields)


def batch_size(run: Run) -> int:
    """Stream images in a step."""
    return int(getattr(run.hyperparameters, "batch_size", run.batch_size))


def setup_images(run: Run) -> int:
    """The images that a method's setup passes through a network; 1 where that does not matter."""
    name = PASSES[run.method].setup_images
    return 1 if name is None else int(getattr(run.hyperparameters, name))


def passed(kinds: tuple[Passed, ...], images: int, epochs: int, kept: int) -> int:
    """The images that a hook passes, of a task of `images` and with `kept` in the buffer."""
    values: dict[Passed, int] = {
        "task": images,
        "task each epoch": images * epochs,
        "buffer": kept,
    }
    return sum(values[kind] for kind in kinds)


def splits(run: Run, images: Splits) -> Splits:
    """The images that a run trains on and is evaluated on, of a data set's."""
    if run.held_out is None:
        return images
    held = round(run.held_out * images.train)
    return Splits(train=images.train - held, test=held)


def work(run: Run, images: Splits, source: Splits | None = None) -> Work:
    """What is done in a run on a data set of `images`, all tasks taken to be of one size.

    `source` are the images of the source, which probes go through.
    """
    info, found, size = PASSES[run.method], splits(run, images), batch_size(run)
    each = found.train // run.phases
    kept = [min(run.buffer or 0, phase * each) for phase in range(run.phases + 1)]  # before each
    in_epoch = [each + (kept[phase] if info.joins_buffer else 0) for phase in range(run.phases)]
    if run.method == "joint":  # keeps an incomplete last batch
        steps = [-(-count // size) for count in in_epoch]
    else:
        steps = [count // size for count in in_epoch]
    evaluated = found.test
    if run.probes and source is not None:
        evaluated += found.test + source.train + source.test
    return Work(
        setup=setup_images(run),
        first_steps=run.epochs * steps[0],
        later_steps=run.epochs * sum(steps[1:]),
        begin=sum(
            passed(info.begins_with, each, run.epochs, kept[phase])
            for phase in range(1, run.phases)
        ),
        end=sum(
            passed(info.ends_with, each, run.epochs, kept[phase + 1]) for phase in range(run.phases)
        ),
        evaluation=(run.phases + 1) * evaluated,
    )


def pretraining_work(params: Params, source: str, images: Splits) -> Work:
    """What is done to train a source's network on its `images`."""
    recipe = params.sources[source].pretraining
    assert recipe is not None
    steps = recipe.epochs * (images.train // recipe.batch_size)
    return Work(first_steps=steps, evaluation=images.test)


def shape(params: Params, run: Run) -> dict[str, Any]:
    """All that decides what the pieces of a run take."""
    fields = METHODS[run.method].hyperparameters.model_fields
    counts = {k: v for k, v in run.hyperparameters if fields[k].annotation is int}
    source = None
    if run.source_data is not None:
        source = params.datasets[run.source_data]
    return {
        "network": run.network.model_dump(),
        "size": params.datasets[run.data].size,
        "source": source and [source.classes, source.size],
        "classes": run.classes,
        "tasks": run.tasks,
        "batch_size": run.batch_size,
        "precision": run.precision,
        "method": run.method,
        "buffer": run.buffer,
        "counts": counts,
        "fidelity": run.fidelity,
    }


def alike(params: Params, run: Run) -> str:
    """What runs have in common that take the same time, as text."""
    more = {
        "benchmark": run.benchmark,
        "data": run.data,
        "epochs": run.epochs,
        "held_out": run.held_out,
        "probes": run.probes,
    }
    return json.dumps(shape(params, run) | more, sort_keys=True)


def pretraining_shape(
    network: Network, classes: int, size: int, recipe: Pretraining
) -> dict[str, Any]:
    """All that decides what a step of pretraining takes."""
    return {
        "pretraining": network.model_dump(),
        "size": size,
        "classes": classes,
        "batch_size": recipe.batch_size,
        "precision": recipe.precision,
    }


def pixels(images: Splits, size: int) -> int:
    """Bytes of a data set's images."""
    return (images.train + images.test) * size**2 * 3


def network_mib(network: Network) -> float:
    """The least that a file of a network's weights takes."""
    return VALUES[network.architecture] * (network.width / 64) ** 2 * 4 / 2**20


def data_on_device(run: Run, images: Splits, size: int, cpu: bool) -> int:
    """Bytes of images that a run holds: all of them, the tasks' once more, and on a CPU the file's.

    Joint holds its one task a third time; a buffer that epochs go through is copied for them.
    """
    found = splits(run, images)
    trained = found.train * (3 if run.method == "joint" else 2)
    if PASSES[run.method].joins_buffer:
        trained += 2 * (run.buffer or 0)
    held = Splits(train=trained, test=found.test)
    return pixels(held, size) + (pixels(images, size) if cpu else 0)


def makespan(works: Iterable[float], workers: int) -> float:
    """The seconds until all is done, each worker taking the longest piece of work that is left."""
    busy = [0.0] * workers
    for work in sorted(works, reverse=True):
        heapq.heapreplace(busy, busy[0] + work)
    return max(busy)
