"""Accuracies and what is made of them, and what is left of a network's initialization."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from twf.learning.augmentation import Augment
from twf.learning.evaluation import accuracy, metrics, similarity
from twf.learning.evaluation.accuracy import accuracy_per_task, all_logits, to_device
from twf.learning.evaluation.similarity import Probe, linear_cka, nearest_neighbour_accuracy
from twf.learning.learner import SourceData
from twf.learning.randomness import CPU
from twf.study.params import Augmentation

# Accuracy per task

PLAIN = Augment(Augmentation(mean=[0.0] * 3, std=[1.0] * 3), CPU)


def fixed_logits(table: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """A network that gives `table`'s rows, and the images to give it: image i has the value i."""
    images = torch.arange(len(table), dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)

    def network(normalised: torch.Tensor) -> torch.Tensor:
        return table[(normalised[:, 0, 0, 0] * 255).round().long()]

    return network, images


def slow_accuracies(table: torch.Tensor, labels: list[int], tasks: int) -> list[list[float]]:
    """Image by image: under Class-IL and under Task-IL."""
    size = table.shape[1] // tasks
    right: list[list[list[bool]]] = [[[] for _ in range(tasks)] for _ in range(2)]
    for row, label in zip(table.tolist(), labels, strict=True):
        task = label // size
        for kind, rivals in zip(right, (row, row[task * size : (task + 1) * size]), strict=True):
            kind[task].append(row[label] == max(rivals))
    return [[100 * sum(r) / len(r) for r in kind] for kind in right]


@given(st.integers(2, 4), st.integers(1, 3), st.lists(st.integers(0, 99), max_size=40))
def test_accuracy_per_task_agrees_with_a_loop_in_batches_of_any_size(tasks, size, more):
    classes = tasks * size
    labels = [*range(0, classes, size), *(label % classes for label in more)]  # of each task
    table = torch.randn(len(labels), classes, generator=torch.Generator().manual_seed(sum(labels)))
    network, images = fixed_logits(table)
    for batch in (accuracy.BATCH, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(accuracy, "BATCH", batch)
            fast = accuracy_per_task(network, PLAIN, images, torch.tensor(labels), tasks, classes)
        for kind, slow in zip(fast, slow_accuracies(table, labels, tasks), strict=True):
            assert kind == pytest.approx(slow)


def test_evaluation_normalises_stored_images_and_neither_crops_nor_flips():
    augment = Augment(Augmentation(padding=4, mean=[0.5] * 3, std=[0.25] * 3), CPU)
    stored = torch.arange(2 * 4 * 4 * 3, dtype=torch.uint8).view(2, 4, 4, 3)
    images = to_device(stored, CPU)
    assert images.dtype == torch.uint8 and images.is_contiguous()
    seen = all_logits(lambda normalised: normalised, augment, images)
    torch.testing.assert_close(seen.permute(0, 2, 3, 1), (stored.float() / 255 - 0.5) / 0.25)


# Accuracy matrices


def test_golden_metrics(golden):
    """Forgettings, transfer and the average accuracy; the golden matrix is float32."""
    case = golden("metrics")
    accuracy = case["accuracy_after_task"].double().tolist()
    for metric, name in (
        (metrics.final_average_accuracy, "final_average_accuracy"),
        (metrics.forgetting, "forgetting_reference_code"),
        (metrics.forgetting_paper, "forgetting_paper"),
        (metrics.backward_transfer, "backward_transfer"),
    ):
        assert metric(accuracy) == pytest.approx(case[name].item(), abs=1e-4)


# A row is a phase; forgetting of the published code, by the paper, and the average accuracy.
BY_HAND = {
    # task 0: 80, 90, 60; task 1: 5 (not yet learned), 70, 65: ((90 - 60) + (70 - 65)) / 2
    "three tasks": ([[80.0, 5.0, 0.0], [90.0, 70.0, 0.0], [60.0, 65.0, 100.0]], 17.5, 17.5, 75.0),
    "best at the end": ([[80.0, 0.0], [90.0, 50.0]], 0.0, -10.0, 70.0),
    # task 1 is at 99 by chance before its own phase: (0 + (60 - 40)) / 2
    "lucky": ([[50.0, 99.0, 0.0], [50.0, 60.0, 0.0], [50.0, 40.0, 70.0]], 10.0, 10.0, 160 / 3),
    "the last task": ([[50.0, 0.0], [50.0, 10.0]], 0.0, 0.0, 30.0),
    "Joint": ([[70.0, 80.0, 90.0]], None, None, 80.0),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_matrices_worked_by_hand(case):
    accuracy, published, paper, average = BY_HAND[case]
    assert metrics.forgetting(accuracy) == published
    assert metrics.forgetting_paper(accuracy) == paper
    assert metrics.final_average_accuracy(accuracy) == pytest.approx(average)
    assert metrics.spread(accuracy) == pytest.approx(np.std(accuracy[-1]))


# What is left of the initialization


def test_cka_is_the_ratio_of_frobenius_norms():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    y = torch.randn(30, 8, generator=generator, dtype=torch.float64)
    a, b = x - x.mean(0), y - y.mean(0)
    expected = (a.T @ b).norm() ** 2 / ((a.T @ a).norm() * (b.T @ b).norm())
    assert linear_cka(x, y).item() == pytest.approx(expected.item())


def test_nearest_neighbours_are_sklearns():
    generator = torch.Generator().manual_seed(1)
    labels, truth = (torch.randint(0, 4, (n,), generator=generator) for n in (300, 100))
    shift = torch.tensor([1.0, -1, 0, 0.5, 0, 0, 0, 0])
    bank, queries = (
        torch.randn(len(y), 8, generator=generator) + y[:, None] * shift for y in (labels, truth)
    )
    reference = KNeighborsClassifier(20, metric="cosine", algorithm="brute").fit(bank, labels)
    expected = reference.score(queries, truth) * 100
    assert nearest_neighbour_accuracy(bank, labels, queries, truth) == pytest.approx(expected)
    few, votes = torch.eye(3), torch.tensor([0, 1, 1])  # fewer than the neighbours asked for
    assert nearest_neighbour_accuracy(few, votes, few, torch.ones(3, dtype=torch.int64)) == 100.0


def test_gates_are_those_of_the_images_of_tasks_seen():
    probe = Probe.__new__(Probe)
    probe.images = torch.zeros(300, 3, 4, 4, dtype=torch.uint8)
    probe.tasks = torch.arange(300) % 3
    probe.augment = SimpleNamespace(normalise=lambda images: images)

    def shares(images: torch.Tensor, tasks: torch.Tensor) -> torch.Tensor:
        assert len(images) == len(tasks)
        return torch.stack([tasks / 4, 1 - tasks / 4], dim=1)

    opened = [probe.gates_open(shares, seen) for seen in (1, 2, 3)]
    assert opened == [[0.0, 100.0], [12.5, 87.5], [25.0, 75.0]]
    assert probe.gates_open(lambda *_: None, 3) is None


def test_the_nearest_neighbours_are_over_layers_3_and_4(monkeypatch):
    """Of the five layers, those whose features tell the classes apart are the last two."""
    labels = torch.arange(40) % 2
    blind, seeing = torch.ones(40, 2), torch.eye(2)[labels]
    layers = [blind, blind, blind, seeing, seeing]
    monkeypatch.setattr(similarity, "layer_features", lambda *_, **__: layers)
    probe = Probe.__new__(Probe)
    probe.source = SourceData(torch.zeros(40), labels, None, None)
    probe.queries, probe.query_labels = torch.zeros(40), labels
    assert probe.nearest_neighbours(None) == [100.0, 100.0]
