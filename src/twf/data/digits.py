"""UCI handwritten digits, which scikit-learn carries: 1,797 images of 8 x 8 pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from twf.data.images import resize_images
from twf.data.store import DataArrays, Split
from twf.study.params import DigitsData


def read(dataset: DigitsData) -> DataArrays:
    """The digits enlarged to `size` pixels, grey in three channels, split class by class."""
    digits = load_digits()
    labels = digits.target.astype(np.int64)
    grey = np.round(digits.images * (255 / 16)).astype(np.uint8)  # [N, 8, 8], from 0 to 16
    images = resize_images(np.repeat(grey[..., None], 3, axis=-1), dataset.size)
    test = _is_test(labels, dataset.test_share, dataset.seed)
    return DataArrays(
        train=Split(images[~test], labels[~test]),
        test=Split(images[test], labels[test]),
        classes=[str(name) for name in digits.target_names],
    )


def _is_test(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """[N], true for a random `share` of each class, rounded to whole images."""
    generator = np.random.default_rng(seed)
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        test[members[: round(share * len(members))]] = True
    return test
