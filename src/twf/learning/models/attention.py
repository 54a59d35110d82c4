"""The two branches that look at the sibling's map, and know each image's task.

`N` images, `T` tasks, `C` channels; equation numbers are the paper's.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.models.resnet import BatchNorm


class TaskLinear(nn.Module):
    """A linear map `[fan_in, fan_out]` without bias for each task, or several maps at once.

    There is one for each of `stds`, the standard deviations that they start with.
    """

    def __init__(self, tasks: int, fan_in: int, fan_out: int, *stds: float) -> None:
        super().__init__()
        maps = [torch.randn(tasks, fan_out, fan_in) * std for std in stds]
        self.weight = nn.Parameter(torch.cat(maps, dim=1).transpose(1, 2).contiguous())

    def forward(self, x: Tensor, of_task: Tensor) -> Tensor:
        """`x`: k vectors of each image, `[N, k, fan_in]`; `of_task`: its task, bool `[N, T]`.

        Gives `[N, k, maps * fan_out]`, of each map in turn.

        One product: a vector stands among zeros, at its task's place. To gather the weights would
        copy a matrix for every image, forward and backward.
        """
        placed = of_task[:, None, :, None] * x[:, :, None, :]  # [N, k, T, fan_in]
        product = torch.mm(placed.flatten(2).flatten(0, 1), self.weight.flatten(0, 1))
        return product.unflatten(0, x.shape[:2])


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


class SpatialAttention(nn.Module):
    """Eq. 5 and 13: a bottleneck of four convolutions to one channel.

    After each, a batch normalisation over all images, then each task's own scale and shift.
    """

    def __init__(self, channels: int, reduction: int = 4) -> None:
        super().__init__()
        inner = channels // reduction
        convolutions = [
            nn.Conv2d(channels, inner, 1),
            nn.Conv2d(inner, inner, 3, dilation=2, padding=2),
            nn.Conv2d(inner, inner, 3, dilation=2, padding=2),
            nn.Conv2d(inner, 1, 1),
        ]
        self.convolutions = nn.ModuleList(convolutions)
        self.norms = nn.ModuleList(BatchNorm(c.out_channels, affine=False) for c in convolutions)

    def forward(self, x: Tensor, scales: Sequence[Tensor], shifts: Sequence[Tensor]) -> Tensor:
        """From `[N, C, H, W]`, and `[N, c]` for each normalisation, to `[N, 1, H, W]`."""
        layers = zip(self.convolutions, self.norms, scales, shifts, strict=True)
        for i, (convolution, norm, scale, shift) in enumerate(layers):
            x = norm(convolution(F.relu(x) if i else x))
            x = affine(x, scale[:, :, None, None], shift[:, :, None, None])
        return x


class Logits(NamedTuple):
    """The two gate logits of each unit; the channels, and positions P, of all layers together.

    A logit is `offset + slope * s` with the spatial attention s: a product of its factors
    `[N, 2, C]`, offset and slope, and of `positions` `[N, P, 2]`, 1 and s.
    """

    first: Tensor  # the gate opens where it is the larger one
    second: Tensor
    positions: Tensor


class Attention(nn.Module):
    """What looks at the sibling's maps of several layers, with `channels` each.

    Channel attention is eq. 6, `tanh(BN(W1 g)) * sigmoid(BN(W2 g)) + W3 g` of the globally averaged
    map `g`, with BN as in `SpatialAttention`. F4: the published code has a map of each task from
    attention to two logits; `to_logits` says if that is so.
    """

    def __init__(self, tasks: int, channels: list[int], to_logits: bool) -> None:
        super().__init__()
        self.tasks, self.channels = tasks, channels
        self.maps, self.spatial, self.to_logits = (nn.ModuleList() for _ in range(3))
        of_tanh, of_sigmoid, of_spatial = (list[Tensor]() for _ in range(3))  # scales
        # Kaiming's normal initialisation over the fan-out, with each activation's gain
        gains = [nn.init.calculate_gain(name) for name in ("tanh", "sigmoid", "relu")]
        for c in channels:
            stds = (gain / math.sqrt(c) for gain in gains)
            self.maps.append(TaskLinear(tasks, c, c, *stds))  # W1, W2, W3
            of_tanh.append(scale_at_start(tasks, c))
            of_sigmoid.append(scale_at_start(tasks, c))
            spatial = SpatialAttention(c)
            self.spatial.append(spatial)
            of_spatial += [scale_at_start(tasks, norm.num_features) for norm in spatial.norms]  # type: ignore[arg-type]
            if to_logits:  # rows 2c and 2c + 1 are those of channel c
                self.to_logits.append(TaskLinear(tasks, c, 2 * c, 1.0))
        self.norm = BatchNorm(2 * sum(channels), affine=False)  # of W1 g and of W2 g
        scales = [torch.cat([*of_tanh, *of_sigmoid], dim=1), *of_spatial]
        self.affine = TaskRows(*scales, *(torch.zeros_like(scale) for scale in scales))

    def forward(
        self, teacher: list[Tensor], task: Tensor, of_task: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Channel attention of all layers together, `[N, C]`; spatial attention, `[N, 1, H, W]`.

        `task`: each image's, `[N]` int64; `of_task`: the same as bool `[N, T]`.
        """
        rows, each = self.affine(task), 4 * len(teacher)
        (scale, *scales), (shift, *shifts) = rows[: each + 1], rows[each + 1 :]
        products = [
            maps(x.mean(dim=(2, 3))[:, None], of_task).squeeze(1).chunk(3, dim=1)
            for maps, x in zip(self.maps, teacher, strict=True)
        ]
        first, second, third = zip(*products, strict=True)  # of each layer, [N, C]
        both = self.norm(torch.cat([*first, *second], dim=1))
        bounded, share = affine(both, scale, shift).chunk(2, dim=1)
        channel = torch.tanh(bounded) * torch.sigmoid(share) + torch.cat(third, dim=1)
        spatial = [
            branch(x, scales[4 * i : 4 * i + 4], shifts[4 * i : 4 * i + 4])
            for i, (branch, x) in enumerate(zip(self.spatial, teacher, strict=True))
        ]
        return channel, spatial

    def of_task(self, task: Tensor) -> Tensor:
        """Which of the tasks is each image's, bool `[N, T]`."""
        return task[:, None] == torch.arange(self.tasks, device=task.device)

    def logits(self, teacher: list[Tensor], task: Tensor) -> Logits:
        """The two logits of each unit, as factors.

        A linear map W of channel plus spatial attention, `W (c + s 1) = W c + s W 1`, needs no
        product at each position. F4: the paper has logits `(c + s, 0)`.
        """
        of_task = self.of_task(task)
        channel, spatial = self(teacher, task, of_task)
        places = torch.cat([s.flatten(1) for s in spatial], dim=1)[:, :, None]
        positions = F.pad(places, (1, 0), value=1.0)
        both = F.pad(channel[:, None], (0, 0, 0, 1), value=1.0)  # c and 1
        if not self.to_logits:
            return Logits(both, torch.zeros_like(both), positions)
        parts = [
            to_logits(part, of_task).unflatten(2, (-1, 2))
            for to_logits, part in zip(
                self.to_logits, both.split(self.channels, dim=2), strict=True
            )
        ]
        first, second = torch.cat(parts, dim=2).unbind(3)
        return Logits(first, second, positions)
