"""Batched augmentation on the device: crop after padding and flip, the same for stored gates."""

from dataclasses import dataclass
from typing import NamedTuple

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

    def __getitem__(self, images: slice) -> "Placement":
        """Those of some images."""
        return Placement(self.top[images], self.left[images], self.flip[images])


class Grid(NamedTuple):
    """Units in rows and columns, `depth` at each place, of a square map that moves with an image.

    They are stored with `side` places along a side, of the map's own `size`.
    """

    depth: int
    side: int
    size: int


Tables = tuple[Tensor, Tensor]


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
        self._tables: dict[tuple[object, ...], Tables] = {}  # by `_tables_of`

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
        """Crop and flip as `placement` says, and normalise. The channels come last in memory."""
        side = images.shape[-1]
        pixels = images.flatten(2).transpose(1, 2)  # [N, H * W, 3]
        moved = self._moved(pixels, placement, (Grid(1, side, side),), side)
        return self.normalise(moved.unflatten(1, (side, side)).permute(0, 3, 1, 2))

    def masks_at(
        self, packed: Tensor, placement: Placement, grids: tuple[Grid, ...], image_size: int
    ) -> Tensor:
        """Crop and flip packed gates of several maps, uint8 `[N, bytes]`, with their images.

        A map moves by its image's shift in whole units of its own, rounded down; stored at half
        size it is cropped as if enlarged by nearest neighbour, and halved again.
        """
        return self._moved(packed[:, :, None], placement, grids, image_size)[:, :, 0]

    def _moved(
        self, units: Tensor, placement: Placement, grids: tuple[Grid, ...], image_size: int
    ) -> Tensor:
        """Units of grids, `[N, units, ...]`, moved with their images; zero where that is outside.

        By tables of where each unit comes from, which cost an image two additions a unit.
        """
        key = (grids, image_size, units.device)
        if key not in self._tables:
            self._tables[key] = self._tables_of(grids, image_size, units.device)
        by_row, by_column = self._tables[key]
        column = torch.add(placement.flip, placement.left, alpha=2)
        source = F.embedding(placement.top, by_row) + F.embedding(column, by_column)
        source = source.clamp(min=0)[:, :, None].expand(-1, -1, units.shape[2])
        return F.pad(units, (0, 0, 1, 0)).gather(1, source)

    def _tables_of(self, grids: tuple[Grid, ...], image_size: int, device: torch.device) -> Tables:
        """Of each unit of moved grids, what its row and its column add to where it comes from.

        `[shifts, units]`, and `[2 * shifts, units]` with each flipped after it. The sum counts from
        1, and is below 1 where that is outside the grid.
        """
        tables: list[Tables] = []
        first, outside = 1, -2 * sum(grid.depth * grid.side**2 for grid in grids)
        for depth, side, size in grids:
            pixels = image_size // size  # along a unit of the map
            step = size // side  # 2 where the map is stored at half size
            shift = torch.arange(2 * self.padding + 1, device=device) // pixels
            full = step * torch.arange(side, device=device) - self.padding // pixels
            lines = torch.div(full + shift[:, None], step, rounding_mode="floor")
            within = (lines >= 0) & (lines < side)
            rows, columns = (
                torch.where(within, lines * stride, outside) for stride in (side * depth, depth)
            )
            columns = torch.stack([columns, columns.flip(1)], dim=1).flatten(0, 1)
            layer = torch.arange(first, first + depth, device=device)
            whole = (-1, side, side, depth)
            tables.append(
                (
                    (rows[:, :, None, None] + layer).expand(whole).flatten(1),
                    columns[:, None, :, None].expand(whole).flatten(1),
                )
            )
            first += depth * side**2
        by_row, by_column = (torch.cat(parts, dim=1) for parts in zip(*tables, strict=True))
        return by_row, by_column
