"""SVHN's cropped digits from their MATLAB files (http://ufldl.stanford.edu/housenumbers/)."""

from __future__ import annotations

from pathlib import Path

from scipy.io import loadmat

from twf.data.images import resize_images
from twf.data.official import as_images, as_labels, broken
from twf.data.store import DataArrays, Images, Labels

NAME = "svhn"
SIDE = 32
ZERO = 10  # the label that MATLAB, which counts from 1, has for the digit 0


def read(folder: Path, size: int) -> DataArrays:
    """The images of `train_32x32.mat` and `test_32x32.mat`; a label is its digit.

    Raises `UserError` that names a missing or damaged file.
    """
    train_images, train_labels = _split(folder / "train_32x32.mat")
    test_images, test_labels = _split(folder / "test_32x32.mat")
    return DataArrays(
        train_images=resize_images(train_images, size),
        train_labels=train_labels,
        test_images=resize_images(test_images, size),
        test_labels=test_labels,
        classes=[str(digit) for digit in range(10)],
    )


def _split(file: Path) -> tuple[Images, Labels]:
    """Images uint8 [N, 32, 32, 3], a view of the file's X [32, 32, 3, N], and labels int64 [N]."""
    try:
        content = loadmat(str(file), variable_names=["X", "y"])
    except FileNotFoundError:
        raise broken(file, "is missing", NAME) from None
    except Exception as error:  # a damaged file can raise anything
        raise broken(file, f"cannot be read as a MATLAB file ({error})", NAME) from None
    images = as_images(file, "X", content.get("X"), (SIDE, SIDE, 3, None), NAME)
    count = images.shape[3]
    labels = as_labels(file, "y", content.get("y"), count, range(1, ZERO + 1), NAME)
    labels[labels == ZERO] = 0
    return images.transpose(3, 0, 1, 2), labels
