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


def measure(effort: Effort, scale: float = 1.0) -> Row:
    """Load a set of CIFAR-100's size (times `scale`), just written: its file is in memory.

    `within_limits`: less than half a second, and no more growth than the array's size.
    """
    images = np.random.default_rng(0).integers(
        0, 256, (int((TRAIN + TEST) * scale), SIDE, SIDE, 3), dtype=np.uint8
    )
    labels = np.arange(len(images)) % CLASSES
    split = int(TRAIN * scale)
    arrays = store.DataArrays(
        images[:split],
        labels[:split],
        images[split:],
        labels[split:],
        [str(label) for label in range(CLASSES)],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.safetensors"
        store.save(path, "random", arrays)
        found = [in_fresh_process(_load, path) for _ in range(effort.repeats)]
    seconds = [row["seconds"] for row in found]
    growth = max(row["growth_mib"] for row in found)
    array = images.nbytes / 2**20
    return {
        "measurement": "data loading",
        "images": len(images),
        "milliseconds": statistics.median(seconds) * 1e3,
        "fastest": min(seconds) * 1e3,
        "slowest": max(seconds) * 1e3,
        "growth_mib": growth,
        "array_mib": array,
        "within_limits": statistics.median(seconds) < SECONDS and growth <= array,
    }


def _load(path: Path) -> Row:
    import torch

    torch.zeros(1).sum()  # what torch sets up at first use is not the data's
    before, start = resident_mib(), time.perf_counter()
    dataset = store.load(path)
    for images in (dataset.train_images, dataset.test_images):
        images.view(-1)[::PAGE].max()
    return {"seconds": time.perf_counter() - start, "growth_mib": resident_mib() - before}
