"""UCI handwritten digits, which scikit-learn carries: 1,797 images of 8 x 8 pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from twf.data.store import DataArrays, Images, Split
from twf.study.params import DigitsData

BRIGHTEST = 16  # the digits' pixels are 0 to 16


def read(dataset: DigitsData) -> DataArrays:
    """The digits enlarged to `size` pixels, grey in three channels, split class by class."""
    digits = load_digits()
    labels = digits.target.astype(np.int64)
    images = _enlarge(digits.images, dataset.size)
    test = _is_test(labels, dataset.test_share, dataset.seed)
    return DataArrays(
        train=Split(images[~test], labels[~test]),
        test=Split(images[test], labels[test]),
        classes=[str(name) for name in digits.target_names],
    )


def _enlarge(images: NDArray[np.float64], size: int) -> Images:
    """[N, 8, 8] of 0 to 16 -> [N, size, size, 3] of 0 to 255."""
    grey = np.round(images * (255 / BRIGHTEST)).astype(np.uint8)
    large = [Image.fromarray(g).resize((size, size), Image.Resampling.BILINEAR) for g in grey]
    return np.repeat(np.stack([np.asarray(g) for g in large])[..., None], 3, axis=-1)


def _is_test(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """[N], true for a random `share` of each class, rounded to whole images."""
    generator = np.random.default_rng(seed)
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        test[members[: round(share * len(members))]] = True
    return test
