"""The two branches that look at the sibling's map, and know each image's task.

`N` images, `T` tasks, `C` channels; equation numbers are the paper's.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.models.resnet import BatchNorm


def of_task(every: Tensor, task: Tensor) -> Tensor:
    """Each image's own task's row: from `[N, T, C]` and `[N]` int64 to `[N, C]`."""
    index = task[:, None, None].expand(-1, 1, every.shape[2])
    return every.gather(1, index).squeeze(1)


class TaskLinear(nn.Module):
    """A linear map `[fan_out, fan_in]` without bias for each task, or several maps at once.

    There is one for each of `stds`, the standard deviations that they start with.
    """

    def __init__(self, tasks: int, fan_in: int, fan_out: int, *stds: float) -> None:
        super().__init__()
        maps = [torch.randn(tasks, fan_out, fan_in) * std for std in stds]
        self.weight = nn.Parameter(torch.cat(maps, dim=1))

    def forward(self, x: Tensor, task: Tensor) -> Tensor:
        """`x`: `[N, fan_in]`, `task`: `[N]` int64. Gives `[N, fan_out]`, of each map in turn.

        All tasks' maps in one product, of which each image keeps its own task's: to gather the
        weights would copy a matrix for every image, forward and backward.
        """
        every = F.linear(x, self.weight.flatten(0, 1))  # [N, T * fan_out]
        return of_task(every.unflatten(1, self.weight.shape[:2]), task)

    def of_ones(self, task: Tensor) -> Tensor:
        """What a vector of ones becomes by each image's task, `[N, fan_out]`."""
        return F.embedding(task, self.weight.sum(dim=2))


class TaskRows(nn.Module):
    """Vectors of each task, `[T, c]` for several c, gathered for all images in one operation.

    By `embedding`: indexing has a gradient that sorts, many small kernels on a GPU.
    """

    def __init__(self, *parts: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.cat(parts, dim=1))
        self.widths = [part.shape[1] for part in parts]

    def forward(self, task: Tensor) -> tuple[Tensor, ...]:
        """`task`: `[N]` int64. Gives each part's `[N, c]`."""
        return F.embedding(task, self.table).split(self.widths, dim=1)


def scale_at_start(tasks: int, channels: int) -> Tensor:
    """Each task's scale of a normalised map, `[T, C]`; its shift starts at 0."""
    return 1 + 0.02 * torch.randn(tasks, channels)


class _Affine(torch.autograd.Function):
    """`shift + scale * x`, whose gradients take half of what `addcmul`'s do.

    `x` `[N, C]` or `[N, C, H, W]`; `scale` and `shift` `[N, C]`, or `[N, C, 1, 1]`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        return torch.addcmul(shift, scale, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, scale = ctx.saved_tensors
        to_x, to_scale, to_shift = gradient * scale, gradient * x, gradient
        if x.dim() == 4:
            to_scale, to_shift = (t.sum(dim=(2, 3), keepdim=True) for t in (to_scale, to_shift))
        return to_x.to(x.dtype), to_scale, to_shift


def affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Each image's own scale and shift of its map: see `_Affine`."""
    result: Tensor = _Affine.apply(x, scale, shift)  # type: ignore[no-untyped-call]
    return result


class ChannelAttention(nn.Module):
    """Eq. 6: `tanh(BN(W1 g)) * sigmoid(BN(W2 g)) + W3 g` of the globally averaged map `g`.

    BN is a batch normalisation over all images together, then each task's own scale and shift.
    """

    def __init__(self, tasks: int, channels: int) -> None:
        super().__init__()
        # Kaiming's normal initialisation over the fan-out, with each activation's gain
        gains = (nn.init.calculate_gain(name) for name in ("tanh", "sigmoid", "relu"))
        stds = (gain / math.sqrt(channels) for gain in gains)
        self.maps = TaskLinear(tasks, channels, channels, *stds)  # W1, W2, W3
        self.norm = BatchNorm(2 * channels, affine=False)  # of both
        scales = [scale_at_start(tasks, channels) for _ in range(2)]
        self.affine = TaskRows(torch.cat(scales, dim=1), torch.zeros(tasks, 2 * channels))

    def forward(self, teacher: Tensor, task: Tensor) -> Tensor:
        """Gives `[N, C]`."""
        g = teacher.mean(dim=(2, 3))
        both, third = self.maps(g, task).split([2 * g.shape[1], g.shape[1]], dim=1)
        scale, shift = self.affine(task)
        bounded, share = affine(self.norm(both), scale, shift).chunk(2, dim=1)
        return torch.tanh(bounded) * torch.sigmoid(share) + third


class SpatialAttention(nn.Module):
    """Eq. 5 and 13: a bottleneck of four convolutions to one channel, with BN as above."""

    def __init__(self, tasks: int, channels: int, reduction: int = 4) -> None:
        super().__init__()
        inner = channels // reduction
        self.convolutions = nn.ModuleList(
            [
                nn.Conv2d(channels, inner, 1),
                nn.Conv2d(inner, inner, 3, dilation=2, padding=2),
                nn.Conv2d(inner, inner, 3, dilation=2, padding=2),
                nn.Conv2d(inner, 1, 1),
            ]
        )
        widths = (inner, inner, inner, 1)
        self.norms = nn.ModuleList(BatchNorm(width, affine=False) for width in widths)
        scales = [scale_at_start(tasks, width) for width in widths]
        self.affine = TaskRows(*scales, *(torch.zeros(tasks, width) for width in widths))

    def forward(self, teacher: Tensor, task: Tensor) -> Tensor:
        """Gives `[N, 1, H, W]`."""
        x, rows = teacher, [row[:, :, None, None] for row in self.affine(task)]
        scales, shifts = rows[:4], rows[4:]
        layers = zip(self.convolutions, self.norms, scales, shifts, strict=True)
        for i, (convolution, norm, scale, shift) in enumerate(layers):
            x = affine(norm(convolution(F.relu(x) if i else x)), scale, shift)
        return x
