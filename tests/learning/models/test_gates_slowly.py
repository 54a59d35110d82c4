"""Feature propagation against itself written out: image by image, position by position."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.models.attention import Attention, TaskLinear
from twf.learning.models.gates import GUMBEL_TEMPERATURE, FeaturePropagation
from twf.learning.randomness import Random

TASKS, STREAM, CURRENT = 3, 4, 1
TASK = torch.tensor([1, 1, 1, 1, 0, 1, 0])  # of the stream's four images and three replayed ones


def linear_slowly(module: TaskLinear, x: Tensor) -> Tensor:
    """Each image's vector `[N, fan_in]` by the matrix of its own task."""
    return torch.stack([v @ module.weight[t] for t, v in zip(TASK, x, strict=True)])


def norm_slowly(norm: nn.BatchNorm2d, scale: Tensor, shift: Tensor, x: Tensor) -> Tensor:
    """`scale` and `shift`: `[T, C]`."""
    dims = [d for d in range(x.dim()) if d != 1]
    mean, var = x.mean(dim=dims, keepdim=True), x.var(dim=dims, keepdim=True, unbiased=False)
    normal = (x - mean) / torch.sqrt(var + norm.eps)
    shape = (-1, *[1] * (x.dim() - 2))
    return torch.stack(
        [scale[t].view(shape) * v + shift[t].view(shape) for t, v in zip(TASK, normal, strict=True)]
    )


def attention_slowly(attention: Attention, teacher: list[Tensor]) -> list[Tensor]:
    """Channel attention plus spatial attention of each layer, `[N, C, H, W]`."""
    every = attention.affine.table.split(attention.affine.widths, dim=1)
    scales, shifts = every[: len(every) // 2], every[len(every) // 2 :]
    half = sum(attention.channels)
    mean, variance = attention.norm.running_mean, attention.norm.running_var
    assert len(mean) == len(variance) == 2 * half
    found, start = [], 0
    for layer, (maps, spatial, x) in enumerate(
        zip(attention.maps, attention.spatial, teacher, strict=True)
    ):
        channels = x.shape[1]
        first, second, third = linear_slowly(maps, x.mean(dim=(2, 3))).chunk(3, dim=1)
        own = slice(start, start + channels), slice(half + start, half + start + channels)
        branches = [
            norm_slowly(attention.norm, scales[0][:, part], shifts[0][:, part], product)
            for part, product in zip(own, (first, second), strict=True)
        ]
        channel = torch.tanh(branches[0]) * torch.sigmoid(branches[1]) + third
        rows = slice(1 + 4 * layer, 5 + 4 * layer)
        layers = zip(spatial.convolutions, spatial.norms, scales[rows], shifts[rows], strict=True)
        for i, (convolution, norm, scale, shift) in enumerate(layers):
            x = norm_slowly(norm, scale, shift, convolution(F.relu(x) if i else x))
        found.append(channel[:, :, None, None] + x)
        start += channels
    return found


def logits_slowly(module: FeaturePropagation, teacher: list[Tensor]) -> list[Tensor]:
    """The matrix of an image's task at each position of each layer: `[N, C, 2, H, W]`."""
    found = attention_slowly(module.attention, teacher)
    if "F4" in module.paper:
        return [torch.stack([attention, torch.zeros_like(attention)], dim=2) for attention in found]
    return [
        torch.einsum("ncj,nchw->njhw", linear.weight[TASK], attention).unflatten(1, (-1, 2))
        for linear, attention in zip(module.attention.to_logits, found, strict=True)
    ]


def gate_slowly(logits: Tensor, generator: torch.Generator) -> Tensor:
    difference = logits[:, :, 0] - logits[:, :, 1]
    uniform = torch.rand(difference.shape, generator=generator, dtype=difference.dtype)
    noisy = difference + torch.log(uniform) - torch.log1p(-uniform)
    soft = torch.sigmoid(noisy / GUMBEL_TEMPERATURE)
    return (noisy > 0).to(soft.dtype) + (soft - soft.detach())


def distance_slowly(student: Tensor, teacher: Tensor, gate: Tensor, by_paper: bool) -> Tensor:
    n, channels = teacher.shape[:2]
    negative = [teacher[:, c][teacher[:, c] < 0] for c in range(channels)]
    margin = torch.stack([values.sum() / (len(values) + 1e-6) for values in negative])
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
    student: list[Tensor],
    teacher: list[Tensor],
    stored: list[Tensor],
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Means over layers; by F7 the paper sums the distance."""
    each = [
        layer_slowly(module.paper, *layer, generator)
        for layer in zip(logits_slowly(module, teacher), student, teacher, stored, strict=True)
    ]
    distances, replays, diversities, gates = zip(*each, strict=True)
    by = len(each) if "F7" not in module.paper else 1
    return sum(distances) / by, sum(replays) / len(each), sum(diversities) / len(each), gates


def layer_slowly(
    paper: frozenset[str],
    logits: Tensor,
    student: Tensor,
    teacher: Tensor,
    stored: Tensor,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    images = range(len(TASK))
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


def gradients(
    losses: tuple[Tensor, ...], module: nn.Module, student: list[Tensor]
) -> dict[str, Tensor]:
    module.zero_grad()
    for maps in student:
        maps.grad = None
    (losses[0] + 0.3 * losses[1] + 0.7 * losses[2]).backward()
    found = {name: p.grad.clone() for name, p in module.named_parameters()}
    return found | {f"student {i}": maps.grad.clone() for i, maps in enumerate(student)}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("paper", ["", "F3", "F4", "F5", "F7", "F10"])
def test_losses_gates_and_gradients_are_those_written_out(paper, layout):
    """Over three layers, two of whose gates are stored at half size."""
    shapes = [(4, 16), (8, 16), (12, 4)]
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(1)
    channels = [c for c, _ in shapes]
    module = FeaturePropagation(TASKS, channels, frozenset([paper])).double()

    def maps() -> list[Tensor]:
        every = [(len(TASK), c, side, side) for c, side in shapes]
        drawn = [torch.randn(s, generator=generator, dtype=torch.float64) for s in every]
        return [one.contiguous(memory_format=layout) for one in drawn]

    student, teacher = maps(), maps()
    for one in student:
        one.requires_grad_()
    stored = []
    for c, side in shapes:
        half = side // 2 if side == 16 else side
        gates = torch.rand(len(TASK) - STREAM, c, half, half, generator=generator) > 0.5
        stored.append(gates.double())
    slow = losses_slowly(module, student, teacher, stored, torch.Generator().manual_seed(2))
    expected = gradients(slow, module, student)
    fast = module(student, teacher, TASK, STREAM, CURRENT, stored, Random(2))
    found = gradients(fast, module, student)
    for one, other in zip(fast.gates, slow[3], strict=True):
        assert torch.equal(one.double(), other)
    for one, other in zip(fast[:3], slow[:3], strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(found, expected)
