"""Ways to store masks: what they take of memory and time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from benchmarks import mask_storage
from benchmarks.mask_storage import Masks

from twf.learning.replay.masks import MaskPacker

PACKER = MaskPacker([(16, 4, 8), (8, 2, 2)])


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """The numbers of seconds do not matter here."""
    monkeypatch.setattr(mask_storage, "ROUNDS", 1)
    monkeypatch.setattr(mask_storage, "SLICE", 0.0)


def test_bytes_take_eight_times_the_packed_bits():
    found = mask_storage.storages(mask_storage.random_masks(5, PACKER))
    assert found["one byte per gate"].mean == 16 * 4 * 8 + 8 * 2 * 2
    assert found["packed bits"].mean == found["packed bits"].largest == 68  # 544 bits


def test_equal_masks_are_compressed_together_and_random_bits_never():
    """Over the whole buffer a compressor finds what repeats from image to image."""
    chance = mask_storage.random_masks(64, PACKER)
    equal = Masks("equal", chance.packed[:1].expand(64, -1).contiguous(), PACKER)
    for name in mask_storage.COMPRESSORS:
        apart, together = f"{name}, per image", f"{name}, whole buffer"
        found = mask_storage.storages(chance)
        assert found[apart].mean > PACKER.bytes and found[together].mean > PACKER.bytes
        found = mask_storage.storages(equal)
        assert found[together].mean < 0.1 * PACKER.bytes < found[apart].mean


def test_an_images_mean_and_largest_size_are_told_apart():
    packed = torch.zeros(2, PACKER.bytes, dtype=torch.uint8)
    packed[1] = mask_storage.random_masks(1, PACKER).packed[0]
    found = mask_storage.storages(Masks("one of two", packed, PACKER))["zlib 6, per image"]
    assert found.mean < PACKER.bytes < found.largest


def test_a_compressor_that_loses_something_is_refused(monkeypatch):
    lossy = {"lossy": (lambda part: part[1:], lambda part: part)}
    monkeypatch.setattr(mask_storage, "COMPRESSORS", lossy)
    with pytest.raises(RuntimeError, match="lost"):
        mask_storage.storages(mask_storage.random_masks(2, PACKER))


def test_times_are_per_image():
    """A way's work is timed as a whole, and shared among the images that it was for."""
    way = mask_storage.Storage(1.0, 1, 4, lambda: sum(range(400_000)), lambda: None)
    write, read = mask_storage.seconds({"slow": way})["slow"]
    alone = mask_storage.seconds({"slow": replace(way, images=1)})["slow"][0]
    assert read < write < alone
