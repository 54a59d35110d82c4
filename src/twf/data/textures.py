"""Drawn textures in colour: a source that shares little with handwriting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from twf.data.store import DataArrays, Images, Split
from twf.study.params import DrawnData

Floats = NDArray[np.float64]
# (generator, x, y [M, size, size] from -0.5 to 0.5) -> a pattern [M, size, size] from -1 to 1
Texture = Callable[[np.random.Generator, Floats, Floats], Floats]


def read(dataset: DrawnData) -> DataArrays:
    """The textures of `TEXTURES`; each image has its own geometry, colours, contrast and noise."""
    train, test = np.random.default_rng(dataset.seed).spawn(2)
    return DataArrays(
        _draw(dataset.train_per_class, dataset.size, train),
        _draw(dataset.test_per_class, dataset.size, test),
        list(TEXTURES),
    )


def _draw(per_class: int, size: int, generator: np.random.Generator) -> Split:
    """`per_class` images of each class, class after class."""
    y, x = np.indices((size, size)) / (size - 1) - 0.5
    x, y = (np.broadcast_to(axis, (per_class, size, size)) for axis in (x, y))
    patterns = np.concatenate([texture(generator, x, y) for texture in TEXTURES.values()])
    labels = np.repeat(np.arange(len(TEXTURES)), per_class)
    return Split(_colour(patterns, generator), labels)


def _colour(patterns: Floats, generator: np.random.Generator) -> Images:
    """Patterns [N, H, W] from -1 to 1 in two random colours, with noise: uint8 [N, H, W, 3]."""
    count = len(patterns)
    contrast = generator.uniform(0.3, 0.9, (count, 1, 1, 3))
    darkest = generator.uniform(0, 1 - contrast)
    # one channel may fall where another rises
    direction = generator.choice([-1, 1], (count, 1, 1, 3))
    mixed = darkest + contrast * (0.5 + 0.5 * direction * patterns[..., None])
    noise = generator.uniform(0, 0.06, (count, 1, 1, 1)) * generator.standard_normal(mixed.shape)
    return np.round(255 * (mixed + noise)).clip(0, 255).astype(np.uint8)


def _per_image(generator: np.random.Generator, like: Floats, low: float, high: float) -> Floats:
    """A uniform number for each image, [M, 1, 1]."""
    return generator.uniform(low, high, (len(like), 1, 1))


def _wave(generator: np.random.Generator, u: Floats, low: float, high: float) -> Floats:
    """A wave along `u` of `low` to `high` periods a side, smooth or near to square, any phase."""
    frequency = _per_image(generator, u, low, high)
    phase = _per_image(generator, u, 0, 2 * np.pi)
    sharpness = _per_image(generator, u, 0.5, 4)
    wave = np.sin(2 * np.pi * frequency * u + phase)
    return np.tanh(sharpness * wave) / np.tanh(sharpness)


def _turn(
    generator: np.random.Generator, x: Floats, y: Floats, degrees: Floats | float
) -> tuple[Floats, Floats]:
    """The coordinates turned by `degrees`, give or take 12."""
    angle = np.deg2rad(degrees + _per_image(generator, x, -12, 12))
    return x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)


def _stripes(
    generator: np.random.Generator, x: Floats, y: Floats, degrees: Floats | float
) -> Floats:
    return _wave(generator, _turn(generator, x, y, degrees)[0], 2, 5)


def _diagonal(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    # falling and rising are one class: training flips images from left to right
    return _stripes(generator, x, y, generator.choice([-45, 45], (len(x), 1, 1)))


def _checkerboard(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    u, v = _turn(generator, x, y, 0)
    return _wave(generator, u, 1.5, 3) * _wave(generator, v, 1.5, 3)


def _centred(generator: np.random.Generator, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The coordinates from a random point near the middle."""
    return x - _per_image(generator, x, -0.25, 0.25), y - _per_image(generator, y, -0.25, 0.25)


def _rings(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    return _wave(generator, np.hypot(*_centred(generator, x, y)), 2.5, 5)


def _rays(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    u, v = _centred(generator, x, y)
    count = generator.integers(3, 7, (len(x), 1, 1))
    turn = _per_image(generator, x, 0, 2 * np.pi)
    rays: Floats = np.tanh(2 * np.sin(count * np.arctan2(v, u) + turn))
    return rays


def _dots(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    """Round dots of one radius, scattered: 10 centres in the image and a little beyond."""
    nearest = np.full_like(x, np.inf)
    for _ in range(10):
        u = x - _per_image(generator, x, -0.55, 0.55)
        v = y - _per_image(generator, y, -0.55, 0.55)
        nearest = np.minimum(nearest, np.hypot(u, v))
    radius = _per_image(generator, x, 0.06, 0.12)
    return np.tanh(40 * (radius - nearest))


def _clouds(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    """Smooth noise: slow waves in eight random directions, scaled to the range from -1 to 1."""
    total = np.zeros_like(x)
    for _ in range(8):
        across = _per_image(generator, x, -2, 2)
        down = _per_image(generator, x, -2, 2)
        phase = _per_image(generator, x, 0, 2 * np.pi)
        total += np.sin(2 * np.pi * (across * x + down * y) + phase)
    largest: Floats = np.abs(total).max(axis=(1, 2), keepdims=True)
    return total / largest


TEXTURES: dict[str, Texture] = {
    "horizontal stripes": partial(_stripes, degrees=90),
    "vertical stripes": partial(_stripes, degrees=0),
    "diagonal stripes": _diagonal,
    "checkerboard": _checkerboard,
    "dots": _dots,
    "rings": _rings,
    "rays": _rays,
    "clouds": _clouds,
}
