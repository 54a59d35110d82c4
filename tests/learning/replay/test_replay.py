"""Buffers and packed masks against their definitions written out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twf.learning.randomness import Random
from twf.learning.replay.balanced import balance
from twf.learning.replay.buffer import ReservoirBuffer
from twf.learning.replay.masks import MaskPacker


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(1, 25), st.integers(1, 10), st.integers(0, 2**31))
def test_insertion_in_batches_is_algorithm_r_one_by_one(size, batch, batches, seed):
    """On the same uniform draws, the batched buffer holds what a loop over examples leaves."""
    buffer = ReservoirBuffer(size, Random(seed))
    stream = torch.arange(batch * batches)
    for part in stream.split(batch):
        buffer.insert(position=part, label=part * 10)
    generator, slow = torch.Generator().manual_seed(seed), {}
    draws = [torch.rand(batch, generator=generator, dtype=torch.float64) for _ in range(batches)]
    for seen, uniform in enumerate(torch.cat(draws).tolist()):
        slow[seen if seen < size else int(uniform * (seen + 1))] = seen
    filled = int(buffer.filled)
    assert filled == min(size, len(stream))
    assert buffer.rows["position"][:filled].tolist() == [slow[slot] for slot in range(filled)]
    assert torch.equal(buffer.rows["label"][:filled], buffer.rows["position"][:filled] * 10)


@settings(max_examples=50)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9), st.integers(0, 2**31))
def test_replay_draws_without_repetition_from_filled_slots_only(size, offered, more, seed):
    """A draw of more than there are slots gives all of them."""
    buffer = ReservoirBuffer(size, Random(seed))
    buffer.insert(position=torch.arange(1, offered + 1))
    drawn = buffer.draw(offered if offered < size else size + more)["position"]
    assert len(drawn) == min(offered, size) == len(set(drawn.tolist()))
    assert 0 not in drawn.tolist()


def test_replay_draws_each_slot_equally_often():
    buffer = ReservoirBuffer(20, Random(0))
    buffer.insert(position=torch.arange(20))
    drawn = torch.cat([buffer.draw(5)["position"] for _ in range(2000)])
    assert torch.bincount(drawn).tolist() == pytest.approx([500] * 20, rel=0.2)


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
    assert {100, 101} < drawn == set(buffer.draw(6)["position"].tolist())
    assert len(drawn) == 6


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
