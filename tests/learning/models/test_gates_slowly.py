"""Feature propagation against itself written out: image by image, position by position."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.models.attention import TaskLinear
from twf.learning.models.gates import GUMBEL_TEMPERATURE, FeaturePropagation, terms
from twf.learning.randomness import Random

TASKS, STREAM, CURRENT = 3, 4, 1
TASK = torch.tensor([1, 1, 1, 1, 0, 1, 0])  # of the stream's four images and three replayed ones


def linear_slowly(module: TaskLinear, x: Tensor) -> Tensor:
    """Each image's vector `[N, fan_in]` by the matrix of its own task."""
    return torch.stack([module.weight[t] @ v for t, v in zip(TASK, x, strict=True)])


def norm_slowly(norm: nn.BatchNorm2d, scale: Tensor, shift: Tensor, x: Tensor) -> Tensor:
    """`scale` and `shift`: `[T, C]`."""
    dims = [d for d in range(x.dim()) if d != 1]
    mean, var = x.mean(dim=dims, keepdim=True), x.var(dim=dims, keepdim=True, unbiased=False)
    normal = (x - mean) / torch.sqrt(var + norm.eps)
    shape = (-1, *[1] * (x.dim() - 2))
    return torch.stack(
        [scale[t].view(shape) * v + shift[t].view(shape) for t, v in zip(TASK, normal, strict=True)]
    )


def attention_slowly(module: FeaturePropagation, teacher: Tensor) -> Tensor:
    """Channel attention plus spatial attention, `[N, C, H, W]`."""
    channel, spatial = module.channel, module.spatial
    first, second, third = linear_slowly(channel.maps, teacher.mean(dim=(2, 3))).chunk(3, dim=1)
    scales, shifts = channel.affine.table.chunk(2, dim=1)
    (scale1, scale2), (shift1, shift2) = scales.chunk(2, dim=1), shifts.chunk(2, dim=1)
    bounded = torch.tanh(norm_slowly(channel.norm, scale1, shift1, first))
    share = torch.sigmoid(norm_slowly(channel.norm, scale2, shift2, second))
    x, rows = teacher, spatial.affine.table.split(spatial.affine.widths, dim=1)
    layers = zip(spatial.convolutions, spatial.norms, rows[:4], rows[4:], strict=True)
    for i, (convolution, norm, scale, shift) in enumerate(layers):
        x = norm_slowly(norm, scale, shift, convolution(F.relu(x) if i else x))
    return (bounded * share + third)[:, :, None, None] + x


def logits_slowly(module: FeaturePropagation, teacher: Tensor) -> Tensor:
    """The matrix of an image's task at each position: `[N, C, 2, H, W]`."""
    attention = attention_slowly(module, teacher)
    if module.to_logits is None:
        return torch.stack([attention, torch.zeros_like(attention)], dim=2)
    weights = module.to_logits.weight[TASK]  # [N, 2 C, C]
    return torch.einsum("njc,nchw->njhw", weights, attention).unflatten(1, (-1, 2))


def gate_slowly(logits: Tensor, generator: torch.Generator) -> Tensor:
    difference = logits[:, :, 0] - logits[:, :, 1]
    uniform = torch.rand(difference.shape, generator=generator, dtype=difference.dtype)
    noisy = difference + torch.log(uniform) - torch.log1p(-uniform)
    soft = torch.sigmoid(noisy / GUMBEL_TEMPERATURE)
    return (noisy > 0).to(soft.dtype) + (soft - soft.detach())


def distance_slowly(student: Tensor, teacher: Tensor, gate: Tensor, by_paper: bool) -> Tensor:
    n, channels = teacher.shape[:2]
    margin = torch.stack([teacher[:, c][teacher[:, c] < 0].mean() for c in range(channels)])
    target = torch.maximum(teacher, margin[:, None, None])
    if by_paper:
        return sum((gate[i] * (student[i] - target[i]) ** 2).sum() for i in range(n)) / n
    total = torch.zeros(())
    for i, c in product(range(n), range(channels)):
        s = student[i, c] / (student[i, c].norm() + 1e-6)
        t = target[i, c] / (target[i, c].norm() + 1e-6)
        counts = ~((s <= t) & (t <= 0))
        total = total + (gate[i, c] * (s - t) ** 2)[counts].sum() / s.numel()
    return total / n


def diversity_slowly(gate: Tensor, chosen: list[int], normalise: bool) -> Tensor:
    average = [gate[i].mean(dim=(1, 2)) for i in chosen]
    if normalise:
        average = [u / u.norm() for u in average]
    spread = [torch.stack([u @ v / 2 for v in average]).exp().sum().log() for u in average]
    return sum(spread) / len(chosen) - 1 / 2 - math.log(len(chosen))


def losses_slowly(
    module: FeaturePropagation,
    student: Tensor,
    teacher: Tensor,
    stored: Tensor,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    paper, images = module.paper, range(len(TASK))
    logits = logits_slowly(module, teacher)
    gate = gate_slowly(logits, generator)
    scale = student.shape[2] // stored.shape[2]
    full = stored.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    remembered = []
    for i in images[STREAM:]:
        first, second = logits[i, :, 0], logits[i, :, 1]
        if "F5" in paper or TASK[i] != CURRENT:
            logit = first - second if "F5" in paper else first
            kept = full[i - STREAM]
            # the logarithms of sigmoid(x) and of 1 - sigmoid(x), also where these are 0 in float64
            likely = kept * F.logsigmoid(logit) + (1 - kept) * F.logsigmoid(-logit)
            remembered.append(-likely.mean())
    of_current = [i for i in images if TASK[i] == CURRENT]
    counted = list(images[:STREAM]) if "F10" in paper else of_current
    return (
        distance_slowly(student, teacher, gate, "F7" in paper),
        torch.stack(remembered).mean(),
        diversity_slowly(gate, counted, "F3" in paper),
        gate,
    )


def gradients(losses: tuple[Tensor, ...], module: nn.Module, student: Tensor) -> dict[str, Tensor]:
    module.zero_grad()
    student.grad = None
    (losses[0] + 0.3 * losses[1] + 0.7 * losses[2]).backward()
    found = {name: p.grad.clone() for name, p in module.named_parameters()}
    return found | {"student": student.grad.clone()}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("paper", ["", "F3", "F4", "F5", "F7", "F10"])
@pytest.mark.parametrize(("channels", "side"), [(8, 16), (12, 4)])
def test_losses_gates_and_gradients_are_those_written_out(channels, side, paper, layout):
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(1)
    module = FeaturePropagation(TASKS, channels, frozenset([paper])).double()
    assert (module.to_logits is None) == (paper == "F4"), "the logits are then attention and 0"
    shape = (len(TASK), channels, side, side)
    student, teacher = (
        torch.randn(shape, generator=generator, dtype=torch.float64).contiguous(
            memory_format=layout
        )
        for _ in range(2)
    )
    student.requires_grad_()
    half = side // 2 if side == 16 else side
    stored = torch.rand(len(TASK) - STREAM, channels, half, half, generator=generator) > 0.5
    stored = stored.double()
    slow = losses_slowly(module, student, teacher, stored, torch.Generator().manual_seed(2))
    expected = gradients(slow, module, student)
    draws = Random(2)
    layer = module(student, teacher, TASK, STREAM, stored, draws)
    fast = terms([layer], TASK, STREAM, CURRENT, module.paper)
    found = gradients(fast, module, student)
    assert torch.equal(layer.gate, slow[3])
    for one, other in zip(fast, slow[:3], strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(found, expected)
