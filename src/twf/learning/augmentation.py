"""Batched augmentation on the device: crop after padding and flip, the same for stored gates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from twf.learning.randomness import Random
from twf.study.params import Augmentation


@dataclass(frozen=True)
class Placement:
    """Where each image of a batch is cropped (`[N]` int64, in the padded image) and if flipped."""

    top: Tensor
    left: Tensor
    flip: Tensor  # [N] bool

    def __getitem__(self, images: slice) -> Placement:
        """Those of some images."""
        return Placement(self.top[images], self.left[images], self.flip[images])


class Augment:
    """From uint8 images `[N, 3, H, W]` to the network's float32 input.

    Padding is with zeros, that is black, before the normalisation.
    """

    def __init__(self, settings: Augmentation, device: torch.device) -> None:
        self.padding = settings.padding
        self.flip = settings.flip
        self.mean = torch.tensor(settings.mean, device=device).view(1, 3, 1, 1)
        self.std = torch.tensor(settings.std, device=device).view(1, 3, 1, 1)

    def normalise(self, images: Tensor) -> Tensor:
        """What evaluation uses: no crop, no flip."""
        return (images / 255 - self.mean) / self.std

    def place(self, count: int, generator: Random) -> Placement:
        """Draw where `count` images are cropped and which are flipped."""
        corner = generator.integers(2 * self.padding + 1, 2, count)
        flip = generator.uniform(count) < 0.5
        return Placement(corner[0], corner[1], flip & self.flip)

    def __call__(self, images: Tensor, generator: Random) -> Tensor:
        """Crop and flip each image at random, and normalise."""
        return self.at(images, self.place(len(images), generator))

    def at(self, images: Tensor, placement: Placement) -> Tensor:
        """Crop and flip as `placement` says, and normalise."""
        height, width = images.shape[-2:]
        rows = torch.arange(height, device=images.device) + placement.top[:, None] - self.padding
        columns = torch.arange(width, device=images.device) + placement.left[:, None] - self.padding
        return self.normalise(_gather(images, rows, columns, placement.flip))

    def masks_at(self, masks: Tensor, placement: Placement, image_size: int, size: int) -> Tensor:
        """Crop and flip stored gates `[N, C, h, w]` of a map of `size` with their images.

        The map moves by the image's shift in whole units of its own, rounded down; stored at half
        size it is cropped as if enlarged by nearest neighbour, and halved again.
        """
        units = image_size // size
        step = size // masks.shape[-1]  # 2 where the map is stored at half size
        full = torch.arange(0, size, step, device=masks.device) - self.padding // units
        rows = torch.div(full + (placement.top // units)[:, None], step, rounding_mode="floor")
        columns = torch.div(full + (placement.left // units)[:, None], step, rounding_mode="floor")
        return _gather(masks, rows, columns, placement.flip)


def _gather(images: Tensor, rows: Tensor, columns: Tensor, flip: Tensor) -> Tensor:
    """Take `rows` and `columns` (`[N, h]`, `[N, w]`) of each image; zero where they lie outside.

    Gives `[N, C, h, w]` with the channels last in memory.
    """
    channels, height, width = images.shape[1:]
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    inside = ((rows >= 0) & (rows < height))[:, :, None]
    inside = inside & ((columns >= 0) & (columns < width))[:, None, :]  # [N, h, w]
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    position = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)  # [N, h * w]
    position = position[:, :, None].expand(-1, -1, channels)
    taken = images.flatten(2).transpose(1, 2).gather(1, position)  # [N, h * w, C]
    return taken.unflatten(1, inside.shape[1:]).permute(0, 3, 1, 2) * inside[:, None]
