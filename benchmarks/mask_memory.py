"""Memory and time of the gate masks in TwF's buffer: bytes, packed bits, lossless compression.

    python -m benchmarks.mask_memory demo split-digits.twf.50.s0 split-digits.twf.200.s0

trains the named runs of a study up to their last task's end, keeps the masks of their buffers, and
prints Markdown tables of what each way to store them takes, beside masks of random bits, which no
compressor can shorten. Needs what the runs need: data and checkpoints; `--pretraining-steps` does
without a checkpoint. Progress goes to standard error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from benchmarks import command
from benchmarks.mask_storage import Masks, markdown, random_masks
from twf import files
from twf.data import store
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.jobs.checkpoints import Checkpoint
from twf.jobs.provenance import device_name
from twf.learning import loop
from twf.learning import tasks as task_splits
from twf.learning.evaluation.accuracy import to_device
from twf.learning.methods import make
from twf.learning.methods.base import Task
from twf.learning.methods.twf import Twf
from twf.learning.pretraining import supervised
from twf.learning.randomness import Random
from twf.learning.sgd import batches
from twf.learning.step import Plain
from twf.progress import progress
from twf.study import Run, expand, reading
from twf.study.params import Params

CPU = torch.device("cpu")


def learned_masks(run: Run, steps: int | None, checkpoint: Checkpoint) -> Masks:
    """The masks in a run's buffer after its last task, or after `steps` steps of each task.

    Without a limit this is the run's own training, draw by draw.
    """
    dataset = store.load(files.data_file(run.data))
    learner = loop.make_learner(run, dataset, None, checkpoint.tensors, CPU)
    method = make(run.method, learner, run.hyperparameters)
    if not isinstance(method, Twf) or not run.buffer:
        raise UserError(f"run {run.id} stores no masks; name runs of twf with a buffer")
    images, labels = to_device(dataset.train_images, CPU), dataset.train_labels
    training = Plain(method)
    title = f"`{run.id}`" if steps is None else f"`{run.id}`, {steps} steps per task"
    with progress(run.id, run.tasks) as advance:
        for number, positions in enumerate(task_splits.split(labels, run.tasks, run.classes)):
            task = Task(number, images[positions], labels[positions])
            for module in method.modules():
                module.train()
            method.begin_task(task)
            training.begin(task.images, task.labels)
            order = learner.generators["order"]
            stream = _batches(len(task.images), method.batch_size, order, run.epochs)
            for epoch, index in islice(stream, steps):
                terms = training.step(index, method.learning_rate(epoch))
            method.end_task(task)
            advance(1, f"loss {torch.stack([*terms.values()]).sum().item():.3f}")
    filled = int(method.reservoir.filled)
    assert method.propagation is not None
    return Masks(title, method.reservoir.rows["masks"][:filled], method.propagation.packer)


def _batches(count: int, size: int, order: Random, epochs: int) -> Iterator[tuple[int, Tensor]]:
    """The epoch of each batch, and its positions."""
    for epoch in range(epochs):
        for index in batches(order.permutation(count), size):
            yield epoch, index


def briefly_pretrained(params: Params, name: str, steps: int) -> Checkpoint:
    """A source's network after a few steps of its recipe, the cosine over these; random for 0."""
    source = params.sources[name]
    if source.data is None or source.pretraining is None:
        raise UserError(f"source {name} has no data; leave --pretraining-steps out for it")
    recipe = source.pretraining
    dataset = store.load(files.data_file(source.data))
    method = supervised(source, params.datasets[source.data], CPU)
    learner = method.learner
    training = Plain(method)
    training.begin(to_device(dataset.train_images, CPU), dataset.train_labels)
    learner.network.train()
    with progress(f"pretrain {name}", steps) as advance:
        order = learner.generators["order"]
        positions = _batches(len(dataset.train_labels), recipe.batch_size, order, recipe.epochs)
        for step, (_, index) in enumerate(islice(positions, steps)):
            rate = method.learning_rate(recipe.epochs * step / steps)
            loss = training.step(index, rate)["cross-entropy"]
            advance(1, f"loss {loss.item():.3f}")
    return Checkpoint(learner.network.state_dict(), about={}, sha256="")


def main(
    study: Annotated[str, typer.Argument(help="A study of params.yaml.")] = "demo",
    runs: Annotated[list[str] | None, typer.Argument(help="Its runs of twf.")] = None,
    project: Annotated[Path, typer.Option(help="With params.yaml, data, checkpoints.")] = Path(),
    steps: Annotated[int | None, typer.Option(min=1, help="Of each task; all if absent.")] = None,
    pretraining_steps: Annotated[
        int | None, typer.Option(min=0, help="Pretrain so long, in place of the checkpoint.")
    ] = None,
) -> None:
    """Measure the masks of some runs' buffers; the demo's two by default."""
    torch.set_num_threads(1)
    with contextlib.chdir(project):
        params = reading.load(files.PARAMS)
        planned = expand(params, study).runs
        starts: dict[str, Checkpoint] = {}
        measured = []
        for name in runs or ["split-digits.twf.50.s0", "split-digits.twf.200.s0"]:
            if name not in planned:
                raise UserError(f"study {study} has no run {name!r}; `twf plan {study}` lists them")
            run = planned[name]
            if run.source not in starts:
                starts[run.source] = (
                    checkpoints.load(files.checkpoint_file(run.source), run.network)
                    if pretraining_steps is None
                    else briefly_pretrained(params, run.source, pretraining_steps)
                )
            measured.append(learned_masks(run, steps, starts[run.source]))
    last = measured[-1]
    measured.append(random_masks(len(last.packed), last.packer))
    print(f"On {device_name(CPU)}:\n\n{markdown(measured)}")


if __name__ == "__main__":
    command(main)
