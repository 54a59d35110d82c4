"""Opening a prepared data set: time, and how much the process grows, in a fresh one."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.timing import Effort, Row, in_fresh_process, resident_mib
from twf.data import store

TRAIN, TEST, SIDE, CLASSES = 50_000, 10_000, 32, 100  # of CIFAR-100
PAGE = 4096  # bytes; one of each is touched
SECONDS = 0.5  # that loading and first touch may take
# Beside the arrays: memory comes in pages, of which each of four arrays may begin one more, and the
# header another.
MARGIN_MIB = 5 * PAGE / 2**20


def measure(effort: Effort, scale: float = 1.0) -> Row:
    """Load a set of CIFAR-100's size (times `scale`), just written: its file is in memory.

    `within_limits`: under half a second, and no more growth than the arrays' size, in whole pages.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "one-of-each.safetensors", Path(folder) / "random.safetensors"
        _write(paths[0], CLASSES, CLASSES)
        size = _write(paths[1], int(TRAIN * scale), int(TEST * scale))
        found = [in_fresh_process(_load, *paths) for _ in range(effort.repeats)]
    seconds = [row["seconds"] for row in found]
    growth = max(row["growth_mib"] for row in found)
    return {
        "measurement": "data loading",
        "images": int(TRAIN * scale) + int(TEST * scale),
        "milliseconds": statistics.median(seconds) * 1e3,
        "fastest": min(seconds) * 1e3,
        "slowest": max(seconds) * 1e3,
        "growth_mib": growth,
        "arrays_mib": size,
        "within_limits": statistics.median(seconds) < SECONDS and growth <= size + MARGIN_MIB,
    }


def _write(path: Path, train: int, test: int) -> float:
    """Random images; gives the size of all arrays in MiB."""
    shape = (train + test, SIDE, SIDE, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    labels = np.arange(len(images)) % CLASSES
    names = [str(label) for label in range(CLASSES)]
    parts = store.Split(images[:train], labels[:train]), store.Split(images[train:], labels[train:])
    store.save(path, "random", store.DataArrays(*parts, names))
    return (images.nbytes + labels.nbytes) / 2**20


def _load(few: Path, path: Path) -> Row:
    _touch(few)  # what libraries set up at first use is not the data's
    before, start = resident_mib(), time.perf_counter()
    dataset = _touch(path)
    found = {"seconds": time.perf_counter() - start, "growth_mib": resident_mib() - before}
    del dataset
    return found


def _touch(path: Path) -> store.Dataset:
    """Load, and read a byte of each page of the images, and the labels."""
    dataset = store.load(path)
    for images in (dataset.train_images, dataset.test_images):
        images.view(-1)[::PAGE].max()
    for labels in (dataset.train_labels, dataset.test_labels):
        labels.max()
    return dataset
