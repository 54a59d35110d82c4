"""Linear CKA and the nearest-neighbour classifier against their definitions and sklearn's."""

from types import SimpleNamespace

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from twf.learning.evaluation import similarity
from twf.learning.evaluation.similarity import Probe, linear_cka, nearest_neighbour_accuracy
from twf.learning.learner import SourceData


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


def test_few_neighbours_are_all_of_them():
    bank, labels = torch.eye(3), torch.tensor([0, 1, 1])
    assert nearest_neighbour_accuracy(bank, labels, bank, torch.tensor([1, 1, 1])) == 100.0


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
