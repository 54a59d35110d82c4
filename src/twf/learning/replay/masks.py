"""Gates of several layers, packed to one bit per unit."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

Shape = tuple[int, int, int]  # channels, height, width


class MaskPacker:
    """Packs the binary gates of all layers of an image into one row of bytes, and back.

    `shapes` are the layers' stored shapes `(C_l, h_l, w_l)`; a row has `self.bytes` bytes.
    """

    def __init__(self, shapes: list[Shape]) -> None:
        self.shapes = shapes
        self.units = [math.prod(shape) for shape in shapes]
        self.bytes = -(-sum(self.units) // 8)

    def pack(self, masks: list[Tensor]) -> Tensor:
        """From `[N, C_l, h_l, w_l]` of zeros and ones for each layer to uint8 `[N, bytes]`."""
        bits = torch.cat([mask.flatten(1) for mask in masks], dim=1).to(torch.uint8)
        bits = F.pad(bits, (0, 8 * self.bytes - bits.shape[1])).unflatten(1, (-1, 8))
        return (bits << _shifts(bits.device)).sum(dim=2, dtype=torch.uint8)

    def unpack(self, packed: Tensor) -> list[Tensor]:
        """The inverse of `pack`; float32."""
        bits = (packed[:, :, None] >> _shifts(packed.device)) & 1
        parts = bits.flatten(1)[:, : sum(self.units)].float().split(self.units, dim=1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, self.shapes, strict=True)]


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)
