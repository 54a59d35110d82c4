"""SVHN's cropped digits from their MATLAB files (http://ufldl.stanford.edu/housenumbers/)."""

from __future__ import annotations

from pathlib import Path

from twf.data.checks import as_images, as_labels, reading
from twf.data.images import resize_images
from twf.data.store import DataArrays, Split

SIDE = 32
ZERO = 10  # the label that MATLAB, which counts from 1, has for the digit 0


def read(folder: Path, size: int) -> DataArrays:
    """The images of `train_32x32.mat` and `test_32x32.mat`; a label is its digit.

    Raises `BrokenFileError`.
    """
    train, test = (_split(folder / f"{split}_32x32.mat", size) for split in ("train", "test"))
    return DataArrays(train, test, [str(digit) for digit in range(10)])


def _split(file: Path, size: int) -> Split:
    """The file's X [32, 32, 3, N] and y [N, 1]."""
    from scipy.io import loadmat  # slow, and no other archive needs it

    with reading(file, "a MATLAB file"):
        content = loadmat(str(file), variable_names=["X", "y"])
    images = as_images(file, "X", content.get("X"), (SIDE, SIDE, 3, "N")).transpose(3, 0, 1, 2)
    labels = as_labels(file, "y", content.get("y"), len(images), range(1, ZERO + 1))
    labels[labels == ZERO] = 0
    return Split(resize_images(images, size), labels)
