"""How a benchmark's classes become tasks, and which images hyperparameters are chosen by."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from twf.data.store import Dataset
from twf.training.randomness import derived_seed


def split(labels: Tensor, tasks: int, classes: int) -> list[Tensor]:
    """The positions of each task's images, in their order; classes stand in their official order.

    Task t has the classes `t * classes / tasks` to `(t + 1) * classes / tasks - 1`.
    """
    task = labels // (classes // tasks)
    return [(task == t).nonzero()[:, 0] for t in range(tasks)]


def hold_out(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions [N] of the training images that stay and of those held out, each in order.

    A random `share` (0 to 1) of all images is held out, whatever their class, as the paper chose
    its hyperparameters on "a random split of 10 % of the training set".
    """
    generator = torch.Generator().manual_seed(derived_seed(seed, "held out"))
    order = torch.randperm(len(labels), generator=generator)
    count = round(share * len(labels))
    return order[count:].sort().values, order[:count].sort().values


def without_test_set(dataset: Dataset, share: float, seed: int) -> Dataset:
    """The data set of a search's run: held-out training images stand where the test images did."""
    kept, held_out = hold_out(dataset.train_labels, share, seed)
    return replace(
        dataset,
        train_images=dataset.train_images[kept],
        train_labels=dataset.train_labels[kept],
        test_images=dataset.train_images[held_out],
        test_labels=dataset.train_labels[held_out],
    )
