"""The reservoir against algorithm R written out, and its promise of equal probability."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twf.learning.randomness import Random
from twf.learning.replay.buffer import ReservoirBuffer


def buffer_of(size: int, seed: int) -> ReservoirBuffer:
    return ReservoirBuffer(size, Random(seed))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 25), st.integers(1, 10), st.integers(0, 2**31))
def test_insertion_in_batches_is_algorithm_r_one_by_one(size, batch, batches, seed):
    """On the same uniform draws, the batched buffer holds what a loop over examples leaves."""
    buffer = buffer_of(size, seed)
    stream = torch.arange(batch * batches)
    for part in stream.split(batch):
        buffer.insert(position=part, label=part * 10)
    generator = torch.Generator().manual_seed(seed)
    slow: dict[int, int] = {}
    seen = 0
    for _ in range(batches):
        for uniform in torch.rand(batch, generator=generator, dtype=torch.float64).tolist():
            slot = seen if seen < size else int(uniform * (seen + 1))
            if slot < size:
                slow[slot] = seen
            seen += 1
    filled = int(buffer.filled)
    assert filled == min(size, batch * batches)
    assert buffer.rows["position"][:filled].tolist() == [slow[i] for i in range(filled)]
    assert torch.equal(buffer.rows["label"][:filled], buffer.rows["position"][:filled] * 10)


def test_every_stream_position_is_kept_with_equal_probability():
    size, batch, batches, trials = 10, 8, 10, 1000
    kept = torch.zeros(batch * batches)
    generator = Random(0)
    for _ in range(trials):
        buffer = ReservoirBuffer(size, generator)
        for part in torch.arange(batch * batches).split(batch):
            buffer.insert(position=part)
        kept[buffer.rows["position"][:size]] += 1
    expected = trials * size / (batch * batches)
    chi_square = ((kept - expected) ** 2 / expected).sum() / (1 - size / (batch * batches))
    assert chi_square < 130  # 79 degrees of freedom: exceeded once in 4,000 seeds


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9), st.integers(0, 2**31))
def test_replay_draws_without_repetition_from_filled_slots_only(size, offered, more, seed):
    """A draw of more than there are slots gives all of them."""
    buffer = buffer_of(size, seed)
    buffer.insert(position=torch.arange(1, offered + 1))
    drawn = buffer.draw(offered if offered < size else size + more)["position"]
    assert len(drawn) == min(offered, size) == len(set(drawn.tolist()))
    assert 0 not in drawn.tolist()


def test_replay_draws_each_slot_equally_often():
    buffer = buffer_of(20, 0)
    buffer.insert(position=torch.arange(20))
    counts = torch.zeros(20)
    for _ in range(2000):
        counts[buffer.draw(5)["position"]] += 1
    assert counts.tolist() == pytest.approx([500] * 20, rel=0.2)
