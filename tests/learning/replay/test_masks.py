"""Packed masks unpack to what was packed; where channels fill bytes, in an eighth of the bytes."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from twf.learning.replay.masks import MaskPacker

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
