"""Accuracy per task against a loop over images, and what Task-IL's mask must imply."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from twf.learning.augmentation import Augment
from twf.learning.evaluation import accuracy
from twf.learning.evaluation.accuracy import accuracy_per_task, all_logits, to_device
from twf.study.params import Augmentation

CPU = torch.device("cpu")
PLAIN = Augment(Augmentation(mean=[0.0] * 3, std=[1.0] * 3), CPU)


def fixed_logits(table: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """A network that gives `table`'s rows, and the images to give it: image i has the value i."""
    images = torch.arange(len(table), dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)

    def network(normalised: torch.Tensor) -> torch.Tensor:
        return table[(normalised[:, 0, 0, 0] * 255).round().long()]

    return network, images


def slow_accuracies(table: torch.Tensor, labels: list[int], tasks: int) -> tuple[list, list]:
    """Image by image, class by class."""
    classes = table.shape[1]
    size = classes // tasks
    right = {"class": [[] for _ in range(tasks)], "task": [[] for _ in range(tasks)]}
    for row, label in zip(table.tolist(), labels, strict=True):
        task = label // size
        own = range(task * size, (task + 1) * size)
        right["class"][task].append(max(range(classes), key=row.__getitem__) == label)
        right["task"][task].append(max(own, key=row.__getitem__) == label)
    return tuple([100 * sum(r) / len(r) for r in kind] for kind in right.values())


@st.composite
def answers(draw):
    """Random logits of a benchmark, with labels of every task."""
    tasks, size = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    classes = tasks * size
    more = draw(st.lists(st.integers(0, classes - 1), max_size=40))
    labels = [*range(0, classes, size), *more]  # one of each task at least
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    table = torch.randn(len(labels), classes, generator=generator)
    return table, torch.tensor(labels), tasks


@given(answers())
def test_accuracy_per_task_agrees_with_a_loop_in_batches_of_any_size(case):
    table, labels, tasks = case
    network, images = fixed_logits(table)
    slow = slow_accuracies(table, labels.tolist(), tasks)
    for batch in (accuracy.BATCH, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(accuracy, "BATCH", batch)
            fast = accuracy_per_task(network, PLAIN, images, labels, tasks, table.shape[1])
        for fast_kind, slow_kind in zip(fast, slow, strict=True):
            assert fast_kind == pytest.approx(slow_kind)
        assert all(t >= c for c, t in zip(*fast, strict=True)), "Task-IL is never below Class-IL"


def test_plain_accuracy_is_the_share_of_right_answers():
    table = torch.eye(4)[[0, 1, 2, 2]]
    network, images = fixed_logits(table)
    labels = torch.tensor([0, 1, 2, 3])
    assert accuracy.accuracy(network, PLAIN, images, labels) == 75.0


def test_evaluation_normalises_and_neither_crops_nor_flips():
    augment = Augment(Augmentation(padding=4, mean=[0.5] * 3, std=[0.25] * 3), CPU)
    images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4)
    seen = []

    def network(normalised: torch.Tensor) -> torch.Tensor:
        seen.append(normalised)
        return normalised.flatten(1)[:, :4]

    all_logits(network, augment, images)
    torch.testing.assert_close(seen[0], (images.float() / 255 - 0.5) / 0.25)


def test_stored_images_reach_the_device_with_channels_first():
    stored = torch.arange(2 * 4 * 4 * 3, dtype=torch.uint8).view(2, 4, 4, 3)
    images = to_device(stored, CPU)
    assert images.dtype == torch.uint8 and images.is_contiguous()
    for n, y, x, c in ((0, 0, 1, 2), (1, 3, 2, 0)):
        assert images[n, c, y, x] == stored[n, y, x, c]
