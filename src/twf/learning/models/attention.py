"""The two branches that look at the sibling's map, and know each image's task.

`N` images, `T` tasks, `C` channels; equation numbers are the paper's.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.models.resnet import BatchNorm


def of_task(every: Tensor, task: Tensor) -> Tensor:
    """Each image's own task's row: from `[N, T, C]` and `[N]` int64 to `[N, C]`."""
    index = task[:, None, None].expand(-1, 1, every.shape[2])
    return every.gather(1, index).squeeze(1)


class TaskLinear(nn.Module):
    """A linear map `[fan_out, fan_in]` without bias for each task."""

    def __init__(self, tasks: int, fan_in: int, fan_out: int, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(tasks, fan_out, fan_in) * std)

    def forward(self, x: Tensor, task: Tensor) -> Tensor:
        """`x`: `[N, fan_in]`, `task`: `[N]` int64. Gives `[N, fan_out]`.

        All tasks' maps in one product, of which each image keeps its own task's: to gather the
        weights would copy a matrix for every image, forward and backward.
        """
        every = F.linear(x, self.weight.flatten(0, 1))  # [N, T * fan_out]
        return of_task(every.unflatten(1, self.weight.shape[:2]), task)

    def of_ones(self, task: Tensor) -> Tensor:
        """What a vector of ones becomes by each image's task, `[N, fan_out]`."""
        every = self.weight.sum(dim=2)
        return of_task(every.expand(len(task), -1, -1), task)


class TaskBatchNorm(nn.Module):
    """Batch normalisation over all images together, then each task's own scale and shift."""

    def __init__(self, tasks: int, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(channels, affine=False)
        self.scale = nn.Parameter(1 + 0.02 * torch.randn(tasks, channels))
        self.shift = nn.Parameter(torch.zeros(tasks, channels))

    def forward(self, x: Tensor, task: Tensor) -> Tensor:
        """`x`: `[N, C, H, W]`, `task`: `[N]` int64."""
        # by `embedding`: indexing has a gradient that sorts, many small kernels on a GPU
        scale, shift = (
            F.embedding(task, rows)[:, :, None, None] for rows in (self.scale, self.shift)
        )
        return torch.addcmul(shift, scale, self.norm(x))


class ChannelAttention(nn.Module):
    """Eq. 6: `tanh(BN(W1 g)) * sigmoid(BN(W2 g)) + W3 g` of the globally averaged map `g`."""

    def __init__(self, tasks: int, channels: int) -> None:
        super().__init__()
        # Kaiming's normal initialisation over the fan-out, with each activation's gain
        gain = {name: nn.init.calculate_gain(name) for name in ("tanh", "sigmoid", "relu")}
        std = {name: value / math.sqrt(channels) for name, value in gain.items()}
        self.w1 = TaskLinear(tasks, channels, channels, std["tanh"])
        self.w2 = TaskLinear(tasks, channels, channels, std["sigmoid"])
        self.w3 = TaskLinear(tasks, channels, channels, std["relu"])
        self.norm1 = TaskBatchNorm(tasks, channels)
        self.norm2 = TaskBatchNorm(tasks, channels)

    def forward(self, teacher: Tensor, task: Tensor) -> Tensor:
        """Gives `[N, C]`."""
        g = teacher.mean(dim=(2, 3))
        bounded = torch.tanh(self.norm1(self.w1(g, task)[:, :, None, None], task))
        share = torch.sigmoid(self.norm2(self.w2(g, task)[:, :, None, None], task))
        result: Tensor = (bounded * share).flatten(1) + self.w3(g, task)
        return result


class SpatialAttention(nn.Module):
    """Eq. 5 and 13: a bottleneck of four convolutions to one channel."""

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
        self.norms = nn.ModuleList(TaskBatchNorm(tasks, c) for c in (inner, inner, inner, 1))

    def forward(self, teacher: Tensor, task: Tensor) -> Tensor:
        """Gives `[N, 1, H, W]`."""
        x = teacher
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = norm(convolution(x if i == 0 else F.relu(x)), task)
        return x
