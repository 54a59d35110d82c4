"""Each channel's mean and standard deviation, and the published ones that params.yaml has."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from project import PROJECT

from twf.data import store
from twf.data.statistics import channel_statistics
from twf.study import reading


@pytest.mark.parametrize("piece", [1, 1000, 10**6])
def test_statistics_agree_with_numpys(piece, monkeypatch):
    monkeypatch.setattr(store, "PIECE", piece)
    images = np.random.default_rng(0).integers(0, 256, (50, 7, 5, 3), dtype=np.uint8)
    images[..., 1] //= 3
    mean, std = channel_statistics(images)
    assert mean.dtype == std.dtype == np.float64
    pixels = images.reshape(-1, 3) / 255
    np.testing.assert_allclose(mean, pixels.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(std, pixels.std(axis=0), rtol=1e-12)


def test_order_and_layout_do_not_matter():
    images = np.random.default_rng(0).integers(0, 256, (50, 7, 5, 3), dtype=np.uint8)
    expected = channel_statistics(images)
    for other in (images[::-1], np.asfortranarray(images)):
        assert np.array_equal(channel_statistics(other), expected)


def test_a_flat_set_has_no_deviation():
    mean, std = channel_statistics(np.full((3, 4, 4, 3), 51, np.uint8))
    assert np.allclose(mean, 0.2) and np.allclose(std, 0, atol=1e-8)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny-imagenet"])
def test_the_published_statistics_are_those_of_the_training_images(name):
    """They were rounded, and some of them taken another way: none is further off than 0.0004."""
    folder = os.environ.get("TWF_REAL_DATA")
    if not folder:
        pytest.skip("TWF_REAL_DATA names no folder with cifar10.npz, cifar100.npz, ...")
    dataset = reading.load(PROJECT / "params.yaml").datasets[name]
    file = "tiny-imagenet-32" if name == "tiny-imagenet" else name
    with np.load(Path(folder) / f"{file}.npz") as arrays:
        mean, std = channel_statistics(arrays["x_train"])
    np.testing.assert_allclose(dataset.augmentation.mean, mean, atol=4e-4)
    np.testing.assert_allclose(dataset.augmentation.std, std, atol=4e-4)
