"""The continual-learning loop, to be read from top to bottom."""

from __future__ import annotations

import math
import time
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from twf.data import tasks as task_splits
from twf.data.augmentation import Augment
from twf.data.store import Dataset
from twf.evaluation.accuracy import Logits, accuracy_per_task, to_device
from twf.evaluation.similarity import Probe
from twf.methods import make
from twf.methods.base import Batch, Learner, Method, SourceData, Task
from twf.models.resnet import ResNet, fresh_classifier
from twf.progress import Advance
from twf.study import Run
from twf.tracking import Tracker
from twf.training.checkpoints import Checkpoint
from twf.training.randomness import Generators, seeded
from twf.training.sgd import batches, sgd_step


@dataclass
class Outcome:
    """What a run found, in the terms of `twf.results.record.SCHEMA`."""

    initial_class_il: list[float]
    initial_task_il: list[float]
    accuracy_class_il: list[list[float]] = field(default_factory=list)
    accuracy_task_il: list[list[float]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    cka: list[list[float]] = field(default_factory=list)
    nearest_neighbours: list[list[float]] = field(default_factory=list)
    reason: str | None = None  # why the run diverged

    @property
    def status(self) -> str:
        return "finished" if self.reason is None else "diverged"


def train(
    run: Run,
    dataset: Dataset,
    source_dataset: Dataset | None,
    checkpoint: Checkpoint,
    device: torch.device,
    tracker: Tracker,
    advance: Advance,
) -> Outcome:
    """Learn the benchmark's tasks one after another, and evaluate on all of them after each."""
    learner = make_learner(run, dataset, source_dataset, checkpoint, device)
    method = make(run.method, learner, run.hyperparameters)
    train_images = to_device(dataset.train_images, device)
    train_labels = dataset.train_labels.to(device)
    test_images = to_device(dataset.test_images, device)
    test_labels = dataset.test_labels.to(device)
    positions = task_splits.split(train_labels, run.tasks, run.classes)
    tasks = [Task(i, train_images[p], train_labels[p]) for i, p in enumerate(positions)]

    def evaluate(logits: Logits) -> tuple[list[float], list[float]]:
        learner.network.eval()
        augment = learner.augment
        return accuracy_per_task(logits, augment, test_images, test_labels, run.tasks, run.classes)

    probe = None
    if run.probes:
        assert source_dataset is not None
        assert learner.source is not None
        probe = Probe(learner.network, learner.augment, test_images, learner.source, source_dataset)

    outcome = Outcome(*evaluate(initial_logits(learner)))
    _probe(probe, learner, outcome)
    for task in method.phases(tasks):
        for module in method.modules():
            module.train()
        method.begin_task(task)
        images, labels = method.training_set(task)
        parameters = [p for module in method.modules() for p in module.parameters()]
        for epoch in range(run.epochs):
            start = time.monotonic()
            terms = _epoch(method, parameters, epoch, images, labels)
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

        class_il, task_il = evaluate(method.logits)
        outcome.accuracy_class_il.append(class_il)
        outcome.accuracy_task_il.append(task_il)
        tracker.task(task.number, class_il, task_il)
        _probe(probe, learner, outcome)
    return outcome


def initial_logits(learner: Learner) -> Logits:
    """The network before training, whatever the method predicts by; the benchmark's classes."""
    return lambda images: learner.network(images)[:, : learner.classes]


def _probe(probe: Probe | None, learner: Learner, outcome: Outcome) -> None:
    """Add what is left of the initialization to the outcome, where the run follows it."""
    if probe is not None:
        learner.network.eval()
        outcome.cka.append(probe.cka(learner.network))
        outcome.nearest_neighbours.append(probe.nearest_neighbours(learner.network))


def make_learner(
    run: Run,
    dataset: Dataset,
    source_dataset: Dataset | None,
    checkpoint: Checkpoint,
    device: torch.device,
) -> Learner:
    """The network a run starts from: pretrained, with a fresh classifier that the seed sets."""
    with seeded(run.seed, "network"):  # what stays where the run is not to be pretrained
        pretrained = ResNet(run.network, checkpoint.classes)
    network = deepcopy(pretrained)
    checkpoint.into(pretrained)
    if run.pretrained:
        checkpoint.into(network)
    with seeded(run.seed, "classifier"):
        fresh_classifier(network, run.classes)
    source = None
    if source_dataset is not None:
        assert run.source_augmentation is not None
        source = SourceData(
            to_device(source_dataset.train_images, device),
            source_dataset.train_labels.to(device),
            Augment(run.source_augmentation, device),
            pretrained.to(device),
        )
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
        fidelity=run.fidelity,
        lr_decay=run.lr_decay,
        source=source,
    )


def _epoch(
    method: Method[Any],
    parameters: list[torch.nn.Parameter],
    epoch: int,
    images: Tensor,
    labels: Tensor,
) -> dict[str, float]:
    """One pass over a task's images in random order. Gives each term's mean over the steps.

    Nothing returns to the host before the end.
    """
    order = method.learner.generators["order"]
    positions = list(batches(len(images), method.batch_size, order, method.keep_last_batch))
    sums: dict[str, Tensor] = {}
    for i, index in enumerate(positions):
        step = method.loss(Batch(images[index], labels[index], index))
        torch.stack(list(step.terms.values())).sum().backward()
        sgd_step(parameters, method.learning_rate(epoch + i / len(positions)))
        if method.buffer is not None and step.store is not None:
            method.buffer.insert(**step.store)
        for name, value in step.terms.items():
            sums[name] = sums.get(name, 0) + value.detach()
    return {name: value.item() / len(positions) for name, value in sums.items()}
