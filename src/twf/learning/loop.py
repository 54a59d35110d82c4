"""The continual-learning loop, to be read from top to bottom."""

import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from twf.data.store import Dataset
from twf.learning import tasks as task_splits
from twf.learning.augmentation import Augment
from twf.learning.evaluation.accuracy import Logits, accuracy_per_task, to_device
from twf.learning.evaluation.similarity import Probe
from twf.learning.learner import Learner, SourceData
from twf.learning.methods import make
from twf.learning.methods.base import Method, Task
from twf.learning.models.resnet import ResNet, fresh_classifier
from twf.learning.precision import used
from twf.learning.randomness import Generators, seeded
from twf.learning.sgd import batches
from twf.learning.state import Tensors, capture, fill, restore
from twf.learning.step import Plain, executed
from twf.study import Run
from twf.study.params import Execution


class Keeper(Protocol):
    """Keeps a run's state between two steps, so that it can go on from there: `twf.jobs.resume`."""

    def load(self) -> tuple[Any, Tensors] | None:
        """What was saved last, as `flatten` gave it; None where there is nothing to go on from."""

    def pause(self, state: Callable[[], Any], now: bool = False) -> None:
        """Between two steps: save `state()` where it is time, or `now`.

        Ends the run with an exception of its own where it was told to stop.
        """


class Tracker(Protocol):
    """Follows a run while it goes on: `twf.tracking.live`."""

    def update(self, outcome: Mapping[str, Any]) -> None:
        """The outcome so far, by the record's columns."""


class Advance(Protocol):
    """Is told of progress."""

    def __call__(self, epochs: int, note: str, steps: int = 0, /) -> None:
        """So many more epochs are done, and of the next one, by an earlier process, some steps."""


@dataclass
class Outcome:
    """What a run found, in the terms of `twf.results.record.SCHEMA`."""

    initial_class_il: list[float] = field(default_factory=list)
    initial_task_il: list[float] = field(default_factory=list)
    accuracy_class_il: list[list[float]] = field(default_factory=list)
    accuracy_task_il: list[list[float]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    cka: list[list[float]] = field(default_factory=list)
    nearest_neighbours: list[list[float]] = field(default_factory=list)
    gates_open: list[list[float]] = field(default_factory=list)
    reason: str | None = None  # why the run diverged

    @property
    def status(self) -> str:
        return "finished" if self.reason is None else "diverged"


@dataclass
class Place:
    """How far a run has come; with the method's state, all that is needed to go on from here."""

    phase: int = 0
    begun: bool = False  # the phase's `begin_task` has been called
    epoch: int = 0
    learned: bool = False  # all epochs of the phase are done
    order: Tensor | None = None  # of the epoch's images; None before its first step
    step: int = 0
    terms: dict[str, Tensor] = field(default_factory=dict)  # [steps] each, of the epoch so far
    seconds: float = 0.0  # of the epoch so far


def train(
    run: Run,
    dataset: Dataset,
    source_dataset: Dataset | None,
    weights: Tensors,
    device: torch.device,
    tracker: Tracker,
    advance: Advance,
    keeper: Keeper,
    execution: Execution = "plain",
) -> Outcome:
    """Learn the benchmark's tasks one after another, and evaluate on all of them after each.

    `weights` are those of the network pretrained on the source, its classifier included.

    Goes on from what `keeper` has saved of this run, and ends as if it had never been interrupted.
    """
    learner = make_learner(run, dataset, source_dataset, weights, device)
    method = make(run.method, learner, run.hyperparameters)
    steps = executed(execution, method)
    train_images = to_device(dataset.train_images, device)
    train_labels = dataset.train_labels.to(device)
    test_images = to_device(dataset.test_images, device)
    test_labels = dataset.test_labels.to(device)
    positions = task_splits.split(train_labels, run.tasks, run.classes)
    phases = method.phases(
        [Task(i, train_images[p], train_labels[p]) for i, p in enumerate(positions)]
    )

    def evaluate(logits: Logits) -> tuple[list[float], list[float]]:
        for module in method.modules():
            module.eval()
        augment = learner.augment
        return accuracy_per_task(logits, augment, test_images, test_labels, run.tasks, run.classes)

    probe = None
    if run.probes:
        assert source_dataset is not None
        assert learner.source is not None
        tasks = test_labels // learner.classes_per_task
        about_source = learner.source, source_dataset
        probe = Probe(learner.network, learner.augment, test_images, tasks, *about_source)

    place, outcome = Place(), Outcome()

    def state() -> dict[str, Any]:
        return {"run": capture(method), "place": vars(place), "outcome": vars(outcome)}

    if (saved := keeper.load()) is not None:
        values, tensors = saved
        restore(method, values["run"], tensors)
        place = Place(**fill(None, values["place"], tensors, device))
        outcome = Outcome(**fill(None, values["outcome"], tensors, device))
        advance(place.phase * run.epochs + place.epoch, "resumed", place.step)
    else:
        # by the network itself, also where the method predicts otherwise
        initial = evaluate(lambda images: learner.network(images)[:, : run.classes])
        outcome.initial_class_il, outcome.initial_task_il = initial
        _probe(probe, method, outcome, run.tasks)
    while place.phase < len(phases):
        task = phases[place.phase]
        if not place.begun:
            for module in method.modules():
                module.train()
            method.begin_task(task)
            place.begun = True
        images, labels = method.training_set(task)
        steps.begin(images, labels)
        while place.epoch < run.epochs:
            terms = _epoch(steps, place, len(images), lambda: keeper.pause(state))
            entry = _entry(task, place, terms)
            outcome.history.append(entry)
            tracker.update(vars(outcome))
            advance(1, f"task {task.number} loss {entry['loss']:.3f}")
            outcome.reason = _divergence(entry, terms)
            if outcome.reason is not None:
                return outcome
            place.epoch, place.order, place.step, place.terms = place.epoch + 1, None, 0, {}
            place.seconds = 0.0
        if not place.learned:
            place.learned = True
            keeper.pause(state, now=True)  # what follows may take long
        method.end_task(task)
        outcome.reason = _lost(learner.network, task)
        if outcome.reason is not None:
            return outcome

        class_il, task_il = evaluate(method.logits)
        outcome.accuracy_class_il.append(class_il)
        outcome.accuracy_task_il.append(task_il)
        _probe(probe, method, outcome, place.phase + 1)
        tracker.update(vars(outcome))
        place = Place(phase=place.phase + 1)
        keeper.pause(state, now=True)
    return outcome


def _probe(probe: Probe | None, method: Method[Any], outcome: Outcome, seen: int) -> None:
    """Add what is left of the initialization to the outcome, where the run follows it."""
    if probe is None:
        return
    network = method.learner.network.eval()
    outcome.cka.append(probe.cka(network))
    outcome.nearest_neighbours.append(probe.nearest_neighbours(network))
    if (gates := probe.gates_open(method.open_gates, seen)) is not None:
        outcome.gates_open.append(gates)


def make_learner(
    run: Run,
    dataset: Dataset,
    source_dataset: Dataset | None,
    weights: Tensors,
    device: torch.device,
) -> Learner:
    """The network a run starts from: pretrained, with a fresh classifier that the seed sets."""
    with seeded(run.seed, "network"):  # a run from scratch keeps these weights
        pretrained = ResNet(run.network, len(weights["classifier.weight"]))
    network = deepcopy(pretrained)
    pretrained.load_state_dict(weights)
    if run.pretrained:
        network.load_state_dict(weights)
    with seeded(run.seed, "classifier"):
        fresh_classifier(network, run.classes)
    source = None
    if source_dataset is not None:
        assert run.source_augmentation is not None
        source = SourceData(
            to_device(source_dataset.train_images, device),
            source_dataset.train_labels.to(device),
            Augment(run.source_augmentation, device),
            pretrained.to(device, memory_format=torch.channels_last),  # type: ignore[call-overload]
        )
    return Learner(
        # as `Augment` lays out images, so that convolutions need not turn either about
        network=network.to(device, memory_format=torch.channels_last),  # type: ignore[call-overload]
        augment=Augment(run.augmentation, device),
        generators=Generators(run.seed, device),
        device=device,
        classes=run.classes,
        tasks=run.tasks,
        batch_size=run.stream_batch,
        epochs=run.epochs,
        buffer=run.buffer,
        image_size=dataset.train_images.shape[1],
        fidelity=run.fidelity,
        lr_decay=run.lr_decay,
        precision=used(run.precision, device),
        source=source,
    )


def _epoch(steps: Plain, place: Place, count: int, pause: Callable[[], None]) -> dict[str, Tensor]:
    """One pass over a task's `count` images in random order, or what is left of it.

    Gives each term's value at every step (`[steps]` each). Nothing returns to the host.
    """
    method = steps.method
    if place.order is None:
        place.order = method.learner.generators["order"].permutation(count)
    positions = batches(place.order, method.learner.batch_size, method.keep_last_batch)
    before, start = place.seconds, time.monotonic()
    while place.step < len(positions):
        index = positions[place.step]
        rate = method.learning_rate(place.epoch + place.step / len(positions))
        terms = steps.step(index, rate)
        for name, value in terms.items():
            if name not in place.terms:
                place.terms[name] = value.new_zeros(len(positions))
        kept = [place.terms[name][place.step] for name in terms]
        torch._foreach_copy_(kept, list(terms.values()))  # one kernel beside a captured step
        place.step += 1
        place.seconds = before + time.monotonic() - start
        pause()
    if method.learner.device.type == "cuda":  # the last steps are only begun
        torch.cuda.synchronize()
        place.seconds = before + time.monotonic() - start
    return place.terms


def _entry(task: Task, place: Place, terms: dict[str, Tensor]) -> dict[str, Any]:
    """An epoch as the record has it: each term's mean over the steps."""
    means = {name: values.double().mean().item() for name, values in terms.items()}
    return {
        "phase": task.number,
        "epoch": place.epoch,
        "seconds": place.seconds,
        "loss": sum(means.values()),
        "terms": means,
    }


def _lost(network: ResNet, task: Task) -> str | None:
    """Which parameters are not finite after a task: its last update has no loss to show it."""
    named = network.named_parameters()
    bad = [name for name, values in named if not values.isfinite().all()]
    return f"{', '.join(bad)} not finite after task {task.number}" if bad else None


def _divergence(entry: dict[str, Any], terms: dict[str, Tensor]) -> str | None:
    """Which terms were not finite first, and when; None where all are finite."""
    finite = torch.stack(list(terms.values())).isfinite()  # [terms, steps]
    if finite.all():
        return None
    step = int((~finite).any(dim=0).nonzero()[0, 0])
    bad = [name for name, row in zip(terms, finite, strict=True) if not row[step]]
    return (
        f"loss term {', '.join(bad)} not finite in step {step} of epoch {entry['epoch']} of task "
        f"{entry['phase']}"
    )
