"""How a benchmark's classes become tasks, and how images are held out for validation."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from twf.data.store import Dataset
from twf.errors import UserError


def split(labels: Tensor, tasks: int, classes: int) -> list[Tensor]:
    """The positions of each task's images, int64, in their order, by `labels`, int64 `[N]`.

    Task t has the classes `t * classes / tasks` to `(t + 1) * classes / tasks - 1`.
    """
    task = labels // (classes // tasks)
    return [(task == number).nonzero()[:, 0] for number in range(tasks)]


def hold_out(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """The positions to train on and those held out, int64, each in their order.

    A random `share` of the whole training set, rounded to whole images, is held out, as the paper
    does for its hyperparameters ("random 10 %"); the classes' shares differ by chance. The seed
    alone decides, on every machine. Raises `UserError` where one of the two would be empty.
    """
    held = round(share * len(labels))
    if not 0 < held < len(labels):
        raise UserError(
            f"a share of {share} of {len(labels)} training images holds {held} out; choose one "
            "that leaves images on both sides"
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    train, held_out = np.sort(order[held:]), np.sort(order[:held])
    return (
        torch.from_numpy(train).to(labels.device),
        torch.from_numpy(held_out).to(labels.device),
    )


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
