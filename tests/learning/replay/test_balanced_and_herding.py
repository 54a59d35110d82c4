"""Equal shares of a buffer, and herding, against their definitions."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from twf.learning.randomness import Random
from twf.learning.replay.balanced import balance
from twf.learning.replay.buffer import ReservoirBuffer
from twf.learning.replay.herding import herd


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 40), st.integers(0, 2**31))
def test_herding_gives_distinct_exemplars_each_the_best_of_those_left(n, width, count, seed):
    features = torch.randn(n, width, generator=torch.Generator().manual_seed(seed)).double()
    order = herd(features, count).tolist()
    assert len(order) == min(n, count) == len(set(order))
    mean = features.mean(dim=0)
    for i, picked in enumerate(order):
        before = features[order[:i]].sum(dim=0)
        cost = {
            j: float((mean - (before + features[j]) / (i + 1)).norm())
            for j in range(n)
            if j not in order[:i]
        }
        assert cost[picked] <= min(cost.values()) + 1e-9


@given(st.integers(1, 4), st.integers(0, 3), st.integers(16, 40), st.integers(0, 2**31))
def test_every_class_has_an_equal_share(new, tasks_before, size, seed):
    generator = Random(seed)
    images, labels = torch.empty(0, 1), torch.empty(0, dtype=torch.int64)
    for task in range(tasks_before + 1):
        fresh = torch.arange(task * new, (task + 1) * new).repeat_interleave(size)
        before = labels.clone()
        images, labels = balance((images, labels), (fresh[:, None], fresh), size, generator)
        share = size // ((task + 1) * new)
        counts = torch.bincount(labels, minlength=(task + 1) * new)
        assert len(labels) == size
        old = [min(share, int((before == c).sum())) for c in range(task * new)]
        assert counts[: task * new].tolist() == old
        latest = counts[task * new :]
        assert latest.max() - latest.min() <= 1
        assert torch.equal(images[:, 0].long(), labels)


def test_pinned_examples_stay_and_are_replayed_with_the_others():
    buffer = ReservoirBuffer(4, Random(0))
    buffer.pinned = {"position": torch.tensor([100, 101])}
    assert buffer.empty
    for part in torch.arange(60).split(6):
        buffer.insert(position=part)
    drawn = {int(p) for _ in range(200) for p in buffer.draw(3)["position"]}
    assert {100, 101} < drawn
    assert len(drawn) == 6
    assert set(buffer.draw(6)["position"].tolist()) == drawn
