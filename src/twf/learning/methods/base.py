"""What a method is: hooks around a step that the engine owns.

A method says what is minimised and what is stored. It never moves data between devices, writes
files or logs: the loop in `twf.learning.loop` does, for all methods alike. For one
task the loop calls

    begin_task -> training_set -> [loss -> backward -> update -> buffer.insert] ... -> end_task

and then `logits` to evaluate.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.learner import Learner
from twf.learning.replay.buffer import ReservoirBuffer
from twf.learning.sgd import sgd_step
from twf.study.types import Hyperparameters

H = TypeVar("H", bound=Hyperparameters)


@dataclass(frozen=True)
class Task:
    """A phase of training: its number from 0, and its images (uint8 `[N, 3, H, W]`) and labels."""

    number: int
    images: Tensor
    labels: Tensor


class Batch(NamedTuple):
    """Images as stored (uint8 `[B, 3, H, W]`), labels, and positions in the training set."""

    images: Tensor
    labels: Tensor
    positions: Tensor


class Step(NamedTuple):
    """What a batch asks for: terms whose sum is minimised, and rows to offer to the buffer."""

    terms: dict[str, Tensor]  # each a scalar, weighted as in the sum
    store: dict[str, Tensor] | None = None  # by column, each `[rows, ...]`


class Method(ABC, Generic[H]):
    """A continual-learning method. Subclasses override what differs from plain training."""

    keep_last_batch = False  # train on an epoch's last, incomplete batch too

    def __init__(self, learner: Learner, hyperparameters: H) -> None:
        self.learner = learner
        self.hyperparameters = hyperparameters
        self.task = 0  # the current one
        self.buffer: ReservoirBuffer | None = None
        self.setup()

    def setup(self) -> None:
        """Make what the method needs beside the network, once."""

    def learning_rate(self, epoch: float) -> float:
        """The rate at a point of a task, in epochs from its start: the benchmark's steps."""
        decay = self.learner.lr_decay
        steps = [] if decay is None else [e for e in decay.epochs if epoch >= e]
        return self.hyperparameters.lr * (1.0 if decay is None else decay.factor ** len(steps))

    def published(self, switch: str) -> bool:
        """Whether a switch (F1 to F17) stands at what the published code does."""
        return self.learner.fidelity[switch] == "published"

    def among_current(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy over the current task's classes alone; `logits` are `[B, classes]`."""
        each = self.learner.classes_per_task
        first = self.task * each
        return F.cross_entropy(logits[:, first : first + each], labels - first)

    def among_seen(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy over the classes of tasks so far; `logits` are `[B, classes]`."""
        seen = (self.task + 1) * self.learner.classes_per_task
        # masked and not cut off, so that a captured step is the same in the last task
        unseen = torch.arange(self.learner.classes, device=labels.device) >= seen
        return F.cross_entropy(logits.masked_fill(unseen, -torch.inf), labels)

    def phases(self, tasks: list[Task]) -> list[Task]:
        """What is trained one after another."""
        return tasks

    def modules(self) -> Iterator[nn.Module]:
        """The modules that are trained; the network first."""
        yield self.learner.network

    def begin_task(self, task: Task) -> None:
        """Before a task's first step."""
        self.task = task.number

    def training_set(self, task: Task) -> tuple[Tensor, Tensor]:
        """The images and labels that a task's epochs go through."""
        return task.images, task.labels

    @abstractmethod
    def loss(self, batch: Batch) -> Step:
        """The loss of one stream batch."""

    def update(self, parameters: list[nn.Parameter], rate: float | Tensor) -> None:
        """Move the parameters by their gradients, which are then gone: plain SGD."""
        sgd_step(parameters, rate)

    def end_task(self, task: Task) -> None:
        """After a task's last step."""

    def open_gates(self, images: Tensor, tasks: Tensor) -> Tensor | None:
        """Which share of each layer's gates is open, `[N, L]`; None where there are none.

        For normalised images of `tasks` (int64 `[N]`), without noise.
        """
        return None

    def logits(self, images: Tensor) -> Tensor:
        """Logits `[N, classes]` of normalised images, in evaluation mode."""
        logits: Tensor = self.learner.network(images)
        return logits


class Rehearsal(Method[H]):
    """A method with a reservoir, filled after each step from what `loss` stores.

    Without a buffer the reservoir has no slot and stays empty.
    """

    def setup(self) -> None:
        size = self.learner.buffer or 0
        self.reservoir = ReservoirBuffer(size, self.learner.generators["replay"])
        self.buffer = self.reservoir
