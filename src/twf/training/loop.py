"""The continual-learning loop, to be read from top to bottom."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from twf.data import tasks as task_splits
from twf.data.augmentation import Augment
from twf.data.store import Dataset
from twf.evaluation.accuracy import accuracy_per_task, to_device
from twf.methods import make
from twf.methods.base import Batch, Learner, Method, Task
from twf.models.resnet import ResNet, fresh_classifier
from twf.progress import Advance
from twf.study import Run
from twf.tracking import Tracker
from twf.training.checkpoints import Checkpoint
from twf.training.randomness import Generators, seeded


@dataclass
class Outcome:
    """What a run found, in the terms of `twf.results.record.SCHEMA`."""

    accuracy_class_il: list[list[float]] = field(default_factory=list)
    accuracy_task_il: list[list[float]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None  # why the run diverged

    @property
    def status(self) -> str:
        return "finished" if self.reason is None else "diverged"


def train(
    run: Run,
    dataset: Dataset,
    checkpoint: Checkpoint,
    device: torch.device,
    tracker: Tracker,
    advance: Advance,
) -> Outcome:
    """Learn the benchmark's tasks one after another, and evaluate on all of them after each."""
    learner = make_learner(run, dataset, checkpoint, device)
    method = make(run.method, learner, run.hyperparameters)
    train_images = to_device(dataset.train_images, device)
    train_labels = dataset.train_labels.to(device)
    test_images = to_device(dataset.test_images, device)
    test_labels = dataset.test_labels.to(device)
    positions = task_splits.split(train_labels, run.tasks, run.classes)
    tasks = [Task(i, train_images[p], train_labels[p]) for i, p in enumerate(positions)]

    outcome = Outcome()
    for task in method.phases(tasks):
        for module in method.modules():
            module.train()
        method.begin_task(task)
        images, labels = method.training_set(task)
        parameters = [p for module in method.modules() for p in module.parameters()]
        for epoch in range(run.epochs):
            start = time.monotonic()
            terms = _epoch(method, parameters, learning_rate(run, epoch), images, labels)
            loss = sum(terms.values())
            entry: dict[str, Any] = {
                "phase": task.number,
                "epoch": epoch,
                "seconds": time.monotonic() - start,
                "loss": loss,
                "terms": terms,
            }
            outcome.history.append(entry)
            tracker.epoch(entry)
            advance(1, f"task {task.number} loss {loss:.3f}")
            if not math.isfinite(loss):
                bad = [name for name, value in terms.items() if not math.isfinite(value)]
                outcome.reason = (
                    f"loss term {', '.join(bad)} not finite in epoch {epoch} of task {task.number}"
                )
                return outcome
        method.end_task(task)

        learner.network.eval()
        class_il, task_il = accuracy_per_task(
            method.logits, learner.augment, test_images, test_labels, run.tasks, run.classes
        )
        outcome.accuracy_class_il.append(class_il)
        outcome.accuracy_task_il.append(task_il)
        tracker.task(task.number, class_il, task_il)
    return outcome


def make_learner(
    run: Run, dataset: Dataset, checkpoint: Checkpoint, device: torch.device
) -> Learner:
    """The pretrained network with a fresh classifier; the seed sets the classifier."""
    network = ResNet(run.network, checkpoint.classes)
    checkpoint.into(network)
    with seeded(run.seed, "classifier"):
        fresh_classifier(network, run.classes)
    return Learner(
        network=network.to(device),
        augment=Augment(run.augmentation, device),
        generators=Generators(run.seed, device),
        device=device,
        classes=run.classes,
        tasks=run.tasks,
        batch_size=run.batch_size,
        epochs=run.epochs,
        buffer=run.buffer,
        image_size=dataset.train_images.shape[1],
    )


def learning_rate(run: Run, epoch: int) -> float:
    """The rate in `epoch` (from 0) of a task."""
    rate = run.hyperparameters["lr"]
    if run.lr_decay is None:
        return rate
    return rate * run.lr_decay.factor ** sum(epoch >= e for e in run.lr_decay.epochs)


def _epoch(
    method: Method[Any],
    parameters: list[torch.nn.Parameter],
    rate: float,
    images: Tensor,
    labels: Tensor,
) -> dict[str, float]:
    """One pass over a task's images in random order. Gives each term's mean over the steps.

    Nothing returns to the host before the end.
    """
    learner = method.learner
    order = torch.randperm(
        len(images), generator=learner.generators["order"], device=learner.device
    )
    batches = list(order.split(learner.batch_size))
    if len(batches[-1]) < learner.batch_size and not method.keep_last_batch:
        batches.pop()
    sums: dict[str, Tensor] = {}
    for index in batches:
        step = method.loss(Batch(images[index], labels[index], index))
        torch.stack(list(step.terms.values())).sum().backward()
        sgd_step(parameters, rate)
        if method.buffer is not None and step.store is not None:
            method.buffer.insert(**step.store)
        for name, value in step.terms.items():
            sums[name] = sums.get(name, 0) + value.detach()
    return {name: value.item() / len(batches) for name, value in sums.items()}


@torch.no_grad()
def sgd_step(parameters: list[torch.nn.Parameter], rate: float) -> None:
    """`theta <- theta - rate * gradient`, and the gradients are gone.

    All methods use SGD without momentum or decay. `torch.optim` would do the same, at the cost of
    seconds per run for importing its compiler.
    """
    trained: list[Tensor] = []
    gradients: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is not None:
            trained.append(parameter)
            gradients.append(parameter.grad)
            parameter.grad = None
    torch._foreach_add_(trained, gradients, alpha=-rate)
