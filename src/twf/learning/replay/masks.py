"""Gates of several layers, packed to one bit per unit."""

import torch
import torch.nn.functional as F
from torch import Tensor

Shape = tuple[int, int, int]  # channels, height, width


class MaskPacker:
    """Packs the binary gates of all layers of an image into one row of bytes, and back.

    `shapes` are the layers' stored shapes `(C_l, h_l, w_l)`; a row has `self.bytes` bytes. A
    position's channels fill `self.depths[l]` whole bytes, so that a row is moved by its bytes.
    """

    def __init__(self, shapes: list[Shape]) -> None:
        self.shapes = shapes
        self.depths = [-(-channels // 8) for channels, _, _ in shapes]
        self.parts = [d * h * w for d, (_, h, w) in zip(self.depths, shapes, strict=True)]
        self.bytes = sum(self.parts)

    def pack(self, masks: list[Tensor]) -> Tensor:
        """From `[N, C_l, h_l, w_l]` of zeros and ones for each layer to uint8 `[N, bytes]`."""
        last = [_in_whole_bytes(mask.permute(0, 2, 3, 1)) for mask in masks]
        rows = [bits.contiguous().flatten(1) for bits in last]
        bits = torch.cat(rows, dim=1).to(torch.uint8).unflatten(1, (-1, 8))
        return (bits << _shifts(bits.device)).sum(dim=2, dtype=torch.uint8)

    def unpack(self, packed: Tensor) -> list[Tensor]:
        """The inverse of `pack`; float32, with the channels last in memory."""
        bits = ((packed[:, :, None] >> _shifts(packed.device)) & 1).float()
        return [
            part.reshape(-1, h, w, 8 * depth)[..., :channels].permute(0, 3, 1, 2)
            for part, depth, (channels, h, w) in zip(
                bits.split(self.parts, dim=1), self.depths, self.shapes, strict=True
            )
        ]


def _in_whole_bytes(bits: Tensor) -> Tensor:
    """`[..., C]` with zeros after the channels, up to a multiple of 8."""
    left = -bits.shape[-1] % 8
    return F.pad(bits, (0, left)) if left else bits


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)
