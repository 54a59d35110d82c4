"""The demo's data: UCI digits, drawn letters and drawn textures, and the checks of `prepare`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from project import PROJECT
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

import twf.data
from twf.data import digits, letters, textures
from twf.data.prepare import prepare
from twf.data.store import DataArrays, Split
from twf.errors import UserError
from twf.study import params, reading

READERS = {"digits": digits, "letters": letters, "textures": textures}
DATASETS = reading.load(PROJECT / "params.yaml").datasets


def described(reader: str, **changes: Any) -> Any:
    """The demo's data set, with few images of each class where they are drawn; changed."""
    few = {} if reader == "digits" else {"train_per_class": 20, "test_per_class": 10}
    return DATASETS[reader].model_copy(update=few | changes)


@pytest.fixture(autouse=True, scope="module")
def _drawn_once() -> Iterator[None]:
    """A letter of a font, which all data sets of a size have, is drawn once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letters, "_glyph", cache(letters._glyph))
        yield


@cache
def read(reader: str, **changes: Any) -> DataArrays:
    return READERS[reader].read(described(reader, **changes))


def content(arrays: DataArrays) -> list[bytes]:
    splits = arrays.splits.values()
    return [array.tobytes() for split in splits for array in (split.images, split.labels)]


def features(images: np.ndarray) -> np.ndarray:
    """Brightness of each pixel: [N, H, W, 3] -> [N, H * W]."""
    return np.asarray(images.mean(-1).reshape(len(images), -1) / 255)


def spectrum(images: np.ndarray) -> np.ndarray:
    """Share of each spatial frequency, whatever phase and colour: [N, H, W, 3] -> [N, H * W]."""
    centred = images / 255 - (images / 255).mean((1, 2), keepdims=True)
    power = (np.abs(np.fft.fft2(centred, axes=(1, 2))) ** 2).sum(-1).reshape(len(images), -1)
    return np.asarray(np.sqrt(power / power.sum(1, keepdims=True)))


def nearest_mean_accuracy(arrays: DataArrays, describe: Any) -> float:
    """Share of test images whose nearest class mean over the training images is their own."""
    train, test = describe(arrays.train.images), describe(arrays.test.images)
    means = np.stack([train[arrays.train.labels == k].mean(0) for k in range(len(arrays.classes))])
    nearest = ((test[:, None] - means[None]) ** 2).sum(-1).argmin(1)
    return float((nearest == arrays.test.labels).mean())


@pytest.mark.parametrize("reader", READERS)
def test_the_seed_alone_decides(reader):
    first = content(read(reader))
    np.random.seed(7)  # noqa: NPY002 (a global state must not matter)
    assert content(READERS[reader].read(described(reader))) == first
    other = content(read(reader, seed=1))
    assert other[0] != first[0] and other[2] != first[2]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("size", [16, 21])
def test_shapes_and_types(reader, size):
    arrays = read(reader, size=size)
    for split in arrays.splits.values():
        assert split.images.shape == (len(split.labels), size, size, 3)
        assert split.images.dtype == np.uint8
        assert split.labels.ndim == 1 and split.labels.dtype == np.int64
        assert set(split.labels.tolist()) == set(range(len(arrays.classes)))


@pytest.mark.parametrize("reader", ["letters", "textures"])
def test_drawn_classes_have_the_asked_number_of_images_all_different(reader):
    arrays = read(reader, train_per_class=7, test_per_class=3)
    assert set(np.bincount(arrays.train.labels)) == {7}
    assert set(np.bincount(arrays.test.labels)) == {3}
    images = np.concatenate([arrays.train.images, arrays.test.images])
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)


@pytest.mark.parametrize("reader", ["digits", "letters"])
def test_strokes_are_grey_and_light_on_black(reader):
    images = read(reader).train.images
    assert (images == images[..., :1]).all()
    assert np.median(images) < 64 and (images.max((1, 2, 3)) > 100).mean() > 0.9


def test_textures_are_coloured():
    images = read("textures").train.images.astype(int)
    assert (np.abs(images[..., 0] - images[..., 1]).mean((1, 2)) > 10).mean() > 0.8


def test_digits_are_split_class_by_class():
    arrays = read("digits")
    train, test = np.bincount(arrays.train.labels), np.bincount(arrays.test.labels)
    assert (train + test == np.bincount(load_digits().target)).all()
    assert (np.abs(test - 0.3 * (train + test)) <= 0.5).all()


def test_digits_keep_their_pixels_and_labels_and_none_is_lost_or_twice():
    arrays = read("digits", size=24)  # three pixels for one, so that each third is the original's
    images = np.concatenate([arrays.train.images, arrays.test.images])[:, 1::3, 1::3, 0]
    labels = np.concatenate([arrays.train.labels, arrays.test.labels])
    original = load_digits()
    pixels = np.round(original.images * 255 / 16).astype(np.uint8)
    expected = {(p.tobytes(), t) for p, t in zip(pixels, original.target.tolist(), strict=True)}
    assert len(expected) == len(images)
    assert {(i.tobytes(), t) for i, t in zip(images, labels.tolist(), strict=True)} == expected


def test_classes_are_learnable():
    # measured over several seeds: 0.89; 0.46 to 0.60; 0.78 to 0.88
    assert nearest_mean_accuracy(read("digits"), features) > 0.8
    assert nearest_mean_accuracy(read("letters"), features) > 0.35
    assert nearest_mean_accuracy(read("textures"), spectrum) > 0.65


WRONG: list[tuple[str, params.Dataset, dict[str, Any]]] = [  # named, wanted, then read
    (r"mine\.classes is 5,.* 8", described("textures", classes=5), {}),
    ("mine: no test image of class 0, 1, 2", described("digits", test_share=0.001), {}),
    (r"mine\.size is 16,.*uint8 \[160, 32, 32, 3\]", described("textures"), {"size": 32}),
    (r"mine\.size is 16,.*float64 \[80, 16, 16, 3\]", described("textures"), {"dtype": float}),
]


@pytest.mark.parametrize(("named", "dataset", "found"), WRONG)
def test_images_unlike_their_entry_are_refused(tmp_path, monkeypatch, named, dataset, found):
    arrays = read("textures", size=found.get("size", 16))
    test = Split(arrays.test.images.astype(found.get("dtype", np.uint8)), arrays.test.labels)
    monkeypatch.setattr(textures, "read", lambda dataset: replace(arrays, test=test))
    with pytest.raises(UserError, match=named):
        prepare("mine", dataset, tmp_path / "mine.safetensors")
    assert not (tmp_path / "mine.safetensors").exists()


@pytest.mark.parametrize(
    ("reader", "package"), [("digits", "sklearn.datasets"), ("letters", "matplotlib")]
)
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, reader, package):
    monkeypatch.delattr(twf.data, reader)
    monkeypatch.delitem(sys.modules, f"twf.data.{reader}")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"'mine'.* {package}.*pip install 'twf\[report\]'"):
        prepare("mine", described(reader), tmp_path / "mine.safetensors")
