"""The gradients of `Convolution`, however they are computed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from twf.learning.models.convolution import Convolution, patches_of


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


@pytest.mark.parametrize(("kernel", "stride", "side"), [(3, 1, 8), (3, 2, 7), (1, 2, 8)])
def test_a_product_of_patches_and_weights_is_the_convolution(kernel, stride, side):
    layer = Convolution(3, 5, kernel, stride, kernel // 2)
    x = torch.randn(2, 3, side, side)
    patches = patches_of(x, kernel, stride, kernel // 2)
    product = patches @ layer.weight.permute(0, 2, 3, 1).flatten(1).T
    expected = layer(x).permute(0, 2, 3, 1).flatten(0, 2)
    torch.testing.assert_close(product, expected)


def test_in_float32_it_is_torchs_own():
    ours, theirs = Convolution(4, 32, 3, 1, 1), nn.Conv2d(4, 32, 3, 1, 1, bias=False)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 4, 4, 4)
    for layer in (ours, theirs):
        layer(x).square().sum().backward()
    assert ours.weight.grad is not None and theirs.weight.grad is not None
    assert torch.equal(ours(x), theirs(x)) and torch.equal(ours.weight.grad, theirs.weight.grad)
