"""A buffer in which every class has an equal share, filled when a task ends."""

import torch
from torch import Tensor

from twf.learning.randomness import Random

Examples = tuple[Tensor, Tensor]  # images [N, ...] and labels [N]


def balance(kept: Examples, new: Examples, size: int, generator: Random) -> Examples:
    """Cut the classes kept to an equal share of `size`, and fill the rest with the new ones.

    The first of a kept class stay. The new classes' examples are drawn at random, an equal number
    of each; where room does not divide, some classes drawn at random have one more.
    """
    images, labels = kept
    new_images, new_labels = new
    old_classes, new_classes = labels.unique(), new_labels.unique()
    share = size // (len(old_classes) + len(new_classes))
    stay = [(labels == c).nonzero()[:share, 0] for c in old_classes]
    rows = torch.cat([*stay, labels.new_empty(0)])
    room = size - len(rows)
    each, spare = divmod(room, len(new_classes))
    one_more = generator.permutation(len(new_classes))
    chosen = []
    for i, label in enumerate(new_classes):
        candidates = (new_labels == label).nonzero()[:, 0]
        order = generator.permutation(len(candidates))
        chosen.append(candidates[order[: each + int(one_more[i] < spare)]])
    picked = torch.cat(chosen)
    return torch.cat([images[rows], new_images[picked]]), torch.cat(
        [labels[rows], new_labels[picked]]
    )
