"""Batched augmentation on the device: crop after padding and flip, the same for stored gates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
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


def together(placements: list[Placement]) -> Placement:
    """Those of several batches, one after the other."""
    top, left, flip = (
        torch.cat([getattr(placement, name) for placement in placements])
        for name in ("top", "left", "flip")
    )
    return Placement(top, left, flip)


class Augment:
    """From uint8 images `[N, 3, H, W]` to the network's float32 input.

    Padding is with zeros, that is black, before the normalisation.
    """

    def __init__(self, settings: Augmentation, device: torch.device) -> None:
        self.padding = settings.padding
        self.flip = settings.flip
        self.mean = torch.tensor(settings.mean, device=device).view(1, 3, 1, 1)
        self.std = torch.tensor(settings.std, device=device).view(1, 3, 1, 1)
        self._lines: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}  # by `_taken`

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
        return self.normalise(self._moved(images, placement, images.shape[-1], images.shape[-1]))

    def masks_at(self, masks: Tensor, placement: Placement, image_size: int, size: int) -> Tensor:
        """Crop and flip stored gates `[N, C, h, w]` of a map of `size` with their images.

        The map moves by the image's shift in whole units of its own, rounded down; stored at half
        size it is cropped as if enlarged by nearest neighbour, and halved again.
        """
        return self._moved(masks, placement, image_size, size)

    def _moved(self, maps: Tensor, placement: Placement, image_size: int, size: int) -> Tensor:
        """Square maps `[N, C, h, h]` moved with their images; zero where that is outside.

        Gives `[N, C, h, h]` with the channels last in memory.
        """
        side = maps.shape[-1]
        key = (side, image_size, size, maps.device)
        if key not in self._lines:
            self._lines[key] = self._taken(side, image_size, size, maps.device)
        lines, flipped = self._lines[key]
        rows = F.embedding(placement.top, lines) * side
        columns = F.embedding(2 * placement.left + placement.flip, flipped)
        position = (rows[:, :, None] + columns[:, None, :]).flatten(1)  # [N, h * h]
        inside = (position >= 0)[:, :, None]
        index = position.clamp(min=0)[:, :, None].expand(-1, -1, maps.shape[1])
        taken = maps.flatten(2).transpose(1, 2).gather(1, index) * inside  # [N, h * h, C]
        return taken.unflatten(1, (side, side)).permute(0, 3, 1, 2)

    def _taken(
        self, side: int, image_size: int, size: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Which line each line of a moved map is, `[shifts, side]`; and with each flipped after it.

        Far below zero where that is outside the map, so that a position there is below zero too.
        """
        units = image_size // size  # pixels of the image along a unit of the map
        step = size // side  # 2 where the map is stored at half size
        shift = torch.arange(2 * self.padding + 1, device=device) // units
        full = torch.arange(0, size, step, device=device) - self.padding // units
        lines = torch.div(full + shift[:, None], step, rounding_mode="floor")
        lines = lines.masked_fill((lines < 0) | (lines >= side), -(side**2) - 1)
        return lines, torch.stack([lines, lines.flip(1)], dim=1).flatten(0, 1)
