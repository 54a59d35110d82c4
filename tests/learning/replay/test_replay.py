"""Buffers, herding and packed masks against their definitions written out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twf.learning.randomness import Random
from twf.learning.replay.balanced import balance
from twf.learning.replay.buffer import ReservoirBuffer
from twf.learning.replay.herding import herd
from twf.learning.replay.masks import MaskPacker


def buffer_of(size: int, seed: int) -> ReservoirBuffer:
    return ReservoirBuffer(size, Random(seed))


@settings(max_examples=50)
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


@settings(max_examples=50)
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


shapes = st.lists(st.tuples(st.integers(1, 20), *[st.integers(1, 6)] * 2), min_size=1, max_size=5)


@given(shapes, st.integers(1, 5), st.integers(0, 2**31))
def test_packing_is_numpys_packbits_of_channels_and_unpacking_gives_what_was_packed(
    shapes, count, seed
):
    generator = torch.Generator().manual_seed(seed)
    masks = [torch.randint(0, 2, (count, *shape), generator=generator).bool() for shape in shapes]
    packer = MaskPacker(shapes)
    packed = packer.pack(masks)
    assert packed.dtype == torch.uint8 and packed.shape == (count, packer.bytes)
    rows = [np.packbits(mask.numpy(), axis=1, bitorder="little") for mask in masks]
    rows = [row.transpose(0, 2, 3, 1).reshape(count, -1) for row in rows]
    assert np.array_equal(packed.numpy(), np.concatenate(rows, axis=1))
    for mask, unpacked in zip(masks, packer.unpack(packed), strict=True):
        assert torch.equal(mask.float(), unpacked)
