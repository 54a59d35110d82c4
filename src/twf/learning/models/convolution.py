"""Convolutions, without what the library does wrong to narrow ones on a CPU."""

import torch.nn.functional as F
from torch import Tensor, nn

NARROW = 16  # channels of oneDNN's blocks with AVX-512; 8 with AVX2


class Convolution(nn.Conv2d):
    """`nn.Conv2d` without bias, dilation or groups.

    On a CPU, a 1 x 1 convolution of fewer than `NARROW` channels first drops the positions that its
    stride skips: oneDNN, left to do so, writes past its memory, at least with AVX2 (issue 6035).
    """

    def __init__(
        self, channels_in: int, channels: int, kernel: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(channels_in, channels, kernel, stride, padding, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From `[N, C, H, W]` to `[N, channels, H', W']`."""
        stride = self.stride[0]
        unpadded = self.kernel_size == (1, 1) and self.padding == (0, 0)
        if x.device.type == "cpu" and unpadded and self.in_channels < NARROW:
            x, stride = x[:, :, ::stride, ::stride], 1
        return F.conv2d(x, self.weight, stride=stride, padding=self.padding[0])
