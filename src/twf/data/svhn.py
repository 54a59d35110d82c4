"""SVHN's cropped digits from their MATLAB files (http://ufldl.stanford.edu/housenumbers/)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twf.data.images import resize_images
from twf.data.store import DataArrays, Split


def read(folder: Path, size: int) -> DataArrays:
    """The images of `train_32x32.mat` and `test_32x32.mat`; a label is its digit."""
    train, test = (_split(folder / f"{split}_32x32.mat", size) for split in ("train", "test"))
    return DataArrays(train, test, [str(digit) for digit in range(10)])


def _split(file: Path, size: int) -> Split:
    """The file's X [32, 32, 3, N] and y [N, 1], from 1 to 10, which is the digit 0."""
    from scipy.io import loadmat  # slow, and no other archive needs it

    content = loadmat(str(file), variable_names=["X", "y"])
    labels = content["y"].reshape(-1).astype(np.int64) % 10
    return Split(resize_images(content["X"].transpose(3, 0, 1, 2), size), labels)
