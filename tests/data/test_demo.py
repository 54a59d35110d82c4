"""The demo's data: UCI digits, drawn letters and drawn textures, and the checks of `prepare`."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from support import PROJECT

from twf.data import packaged
from twf.data.prepare import prepare
from twf.data.store import DataArrays, Split
from twf.errors import UserError
from twf.study import reading

DATASETS = reading.load(PROJECT / "params.yaml").datasets


def described(reader: str, **changes: Any) -> Any:
    """The demo's data set, with few images of each class where they are drawn; changed."""
    few = {} if reader == "digits" else {"train_per_class": 20, "test_per_class": 10}
    return DATASETS[reader].model_copy(update=few | changes)


@cache
def read(reader: str, **changes: Any) -> DataArrays:
    return packaged.READERS[reader](described(reader, **changes))


# Mean brightness, and differences from row to row and column to column, of both splits as first
# drawn. A machine may round a pixel otherwise; code that draws other images changes one by more.
PINNED = {
    "digits": [77.97, 16.68, 30.70, 77.59, 16.83, 30.72],
    "letters": [58.56, 24.86, 33.48, 57.77, 25.19, 34.08],
    "textures": [128.79, 42.90, 44.05, 129.40, 42.14, 42.67],
}


@pytest.mark.parametrize("reader", packaged.READERS)
def test_the_images_are_as_first_drawn_and_the_seed_decides_them(reader):
    splits = read(reader).splits.values()
    means = []
    for images in (split.images.astype(float) for split in splits):
        means += [images.mean(), *(np.abs(np.diff(images, axis=axis)).mean() for axis in (1, 2))]
    assert means == pytest.approx(PINNED[reader], abs=0.0051)
    np.random.seed(7)  # noqa: NPY002 (a global state must not matter)
    again = packaged.READERS[reader](described(reader)).splits.values()
    other = read(reader, seed=1).splits.values()
    for first, second, third in zip(splits, again, other, strict=True):
        assert first.fingerprint == second.fingerprint != third.fingerprint


def test_digits_keep_their_pixels_and_labels_and_are_split_class_by_class():
    data, original = read("digits", size=24), load_digits()
    images = np.concatenate([data.train.images, data.test.images])
    labels = np.concatenate([data.train.labels, data.test.labels])
    small = images[:, 1::3, 1::3, 0]  # three pixels for one: each third is the original's
    pixels = np.round(original.images * 255 / 16).astype(np.uint8)
    expected = Split(pixels, original.target).fingerprint
    assert Split(np.ascontiguousarray(small), labels).fingerprint == expected
    test, every = np.bincount(data.test.labels), np.bincount(labels)
    assert (np.abs(test - 0.3 * every) <= 0.5).all()


@pytest.mark.parametrize(
    ("named", "reader", "changes"),
    [
        (r"mine\.classes is 5,.* 8", "textures", {"classes": 5}),
        (r"mine\.size is 32,.* 16 x 16 pixels", "textures", {"size": 32}),
        ("mine: no test image of class 0, 1, 2", "digits", {"test_share": 0.001}),
    ],
)
def test_images_unlike_their_entry_are_refused(tmp_path, monkeypatch, named, reader, changes):
    made = read(reader, **(changes if reader == "digits" else {}))
    monkeypatch.setitem(packaged.READERS, reader, lambda _: made)
    with pytest.raises(UserError, match=named):
        prepare("mine", described(reader, **changes), tmp_path / "mine.safetensors")
    assert not (tmp_path / "mine.safetensors").exists()
