"""Learnable images that no file has."""

import numpy as np


def pictures(classes: int, per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Learnable images uint8 `[N, 16, 16, 3]`, all different: a pattern per class, and noise."""
    patterns = np.random.default_rng(1000 + classes).integers(40, 216, (classes, 4, 4, 3))
    labels = np.tile(np.arange(classes), per_class)
    noise = np.random.default_rng(seed).integers(-40, 40, (len(labels), 16, 16, 3))
    images = patterns[labels].repeat(4, axis=1).repeat(4, axis=2) + noise
    return images.astype(np.uint8), labels


def split_pictures(classes: int) -> dict[str, np.ndarray]:
    """A miniature archive: 11 training and 4 test images of each class."""
    x_train, y_train = pictures(classes, 11, seed=0)
    x_test, y_test = pictures(classes, 4, seed=1)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
