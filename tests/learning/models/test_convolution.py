"""The gradients of `Convolution`, however they are computed."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from twf.learning.models.convolution import Convolution

# Where what the convolution writes past its memory belongs to something else, the process ends
ERRORS = """
import torch
from twf.learning.models.convolution import Convolution

torch.set_num_threads(1)
for channels in (2, 4, 6, 8, 16):
    layer = Convolution(channels, 16, 1, stride=2).to(memory_format=torch.channels_last)
    x = torch.randn(4, channels, 32, 32).to(memory_format=torch.channels_last)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        loss = layer.to(dtype)(x.to(dtype)).square().sum()
        gradients.append(torch.autograd.grad(loss, layer.weight)[0].double())
    print(float((gradients[0] - gradients[1]).norm() / gradients[1].norm()))
"""


def test_narrow_strided_1x1_convolutions_have_the_right_gradients_with_avx2_too():
    words = [sys.executable, "-c", ERRORS]
    avx2 = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(words, env=avx2, capture_output=True, text=True, timeout=300, check=True)
    errors = [float(line) for line in done.stdout.split()]
    assert len(errors) == 5 and max(errors) < 1e-5, errors


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (1, 1), (1, 2), (7, 2)])
@pytest.mark.parametrize("side", [8, 7, 32])
def test_in_bfloat16_its_gradients_are_those_of_float32_but_for_rounding(kernel, stride, side):
    torch.manual_seed(0)
    ours = Convolution(6, 128, kernel, stride, kernel // 2)  # a product up to 8 x 8
    x = torch.randn(4, 6, side, side).to(memory_format=torch.channels_last)
    results = {}
    for dtype in (torch.float32, torch.bfloat16):
        ours.weight.grad, leaf = None, x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            y = ours(leaf)
        assert y.dtype == dtype
        y.float().square().sum().backward()
        results[dtype] = [y.float(), leaf.grad, ours.weight.grad]
    for exact, rounded in zip(*results.values(), strict=True):
        assert rounded.dtype == torch.float32
        assert (rounded - exact).norm() < 0.01 * exact.norm()


def test_in_float32_it_is_torchs_own():
    ours, theirs = Convolution(4, 32, 3, 1, 1), nn.Conv2d(4, 32, 3, 1, 1, bias=False)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 4, 4, 4)
    for layer in (ours, theirs):
        layer(x).square().sum().backward()
    assert ours.weight.grad is not None and theirs.weight.grad is not None
    assert torch.equal(ours(x), theirs(x)) and torch.equal(ours.weight.grad, theirs.weight.grad)
