"""Mean and standard deviation of the channels of an image set, which normalisation needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twf.data.store import Images, pieces


def channel_statistics(images: Images) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each channel, float64 [3] each, of uint8 images [N, H, W, 3].

    Pixels are scaled to 0 to 1; the deviation is the population's. The 256 values are counted piece
    by piece, which is exact, so nothing depends on the order of the images.
    """
    counts = np.zeros((3, 256), dtype=np.int64)
    for piece in pieces(images):
        for channel in range(3):
            counts[channel] += np.bincount(images[piece, ..., channel].ravel(), minlength=256)
    values = np.arange(256) / 255
    share = counts / counts.sum(axis=1, keepdims=True)
    mean = share @ values
    variance = (share * (values - mean[:, None]) ** 2).sum(axis=1)
    return mean, np.sqrt(variance)
