"""Convolutions, with a faster gradient where the library's is slow."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NARROW = 16  # channels of oneDNN's blocks with AVX-512; 8 with AVX2


class Convolution(nn.Conv2d):
    """`nn.Conv2d` without bias, dilation or groups.

    In bfloat16 on a CPU the gradient of its weight is a product of matrices where the map that it
    gives has twice as many channels as positions, or more: oneDNN takes up to six times as long.

    On a CPU, a 1 x 1 convolution of fewer than `NARROW` channels first drops the positions that its
    stride skips: oneDNN, left to do so, writes past its memory, at least with AVX2 (issue 6035).
    """

    def __init__(
        self, channels_in: int, channels: int, kernel: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(channels_in, channels, kernel, stride, padding, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From `[N, C, H, W]` to `[N, channels, H', W']`."""
        stride, on_cpu = self.stride[0], x.device.type == "cpu"
        unpadded = self.kernel_size == (1, 1) and self.padding == (0, 0)
        if on_cpu and unpadded and self.in_channels < NARROW:
            x, stride = x[:, :, ::stride, ::stride], 1
        rounded = on_cpu and torch.is_autocast_enabled("cpu")
        positions = x.shape[2] * x.shape[3] // stride**2
        if not rounded or self.out_channels < 2 * positions:
            return F.conv2d(x, self.weight, stride=stride, padding=self.padding[0])
        inputs = (x.bfloat16(), self.weight.bfloat16(), stride, self.padding[0])
        result: Tensor = _ByProduct.apply(*inputs)  # type: ignore[no-untyped-call]
        return result


class _ByProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return torch.conv2d(x, weight, stride=stride, padding=padding)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        x, weight = ctx.saved_tensors
        to_input = None
        if ctx.needs_input_grad[0]:
            shape = [[ctx.stride] * 2, [ctx.padding] * 2, [1, 1], False, [0, 0], 1]
            to_input = torch.ops.aten.convolution_backward(
                gradient, x, weight, None, *shape, [True, False, False]
            )[0]
        patches = patches_of(x, weight.shape[2], ctx.stride, ctx.padding)
        rows = gradient.permute(0, 2, 3, 1).flatten(0, 2)  # [N * H' * W', channels]
        to_weight = (rows.T @ patches).unflatten(1, (*weight.shape[2:], -1)).permute(0, 3, 1, 2)
        return to_input, to_weight, None, None


def patches_of(x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """What each position of a convolution sees: `[N * H' * W', kernel * kernel * C]`."""
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, padding, padding, padding, padding))
    windows = padded.unfold(1, kernel, stride).unfold(2, kernel, stride)  # [N, H', W', C, k, k]
    return windows.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(0, 2)
