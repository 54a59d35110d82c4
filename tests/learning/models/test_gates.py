"""Feature propagation against the golden numbers, and against itself written out.

Written out is image by image, position by position.
"""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.models import gates
from twf.learning.models.attention import Attention
from twf.learning.models.gates import FeaturePropagation
from twf.learning.randomness import Random


def golden_module(case: dict, dtype: torch.dtype) -> FeaturePropagation:
    """The module of one layer with the golden case's parameters."""
    tasks, channels = int(case["n_tasks"]), case["student"].shape[1]
    module = FeaturePropagation(tasks, [channels]).to(dtype)
    attention = module.attention
    with torch.no_grad():
        maps = torch.cat([case[f"channel_w{i}"] for i in (1, 2, 3)], 1)
        attention.maps[0].weight.copy_(maps.mT)
        names = ["channel_bn1", "channel_bn2", *(f"spatial_bn{i}" for i in (1, 2, 3, 4))]
        pairs = [case[f"{name}_gamma_beta"].chunk(2, dim=1) for name in names]
        table = torch.cat([*(p[0] for p in pairs), *(p[1] for p in pairs)], 1)
        attention.affine.table.copy_(table)
        for i, convolution in enumerate(attention.spatial[0].convolutions, start=1):
            convolution.weight.copy_(case[f"spatial_conv{i}_w"])
            convolution.bias.copy_(case[f"spatial_conv{i}_b"])
        attention.to_logits[0].weight.copy_(case["gate_w"].mT)
    return module


@pytest.mark.parametrize("name", ["feature_propagation_small", "feature_propagation_halved"])
def test_golden_feature_propagation(golden, name, dtype, close, monkeypatch):
    case = golden(name)
    module = golden_module(case, dtype)
    teacher = case["teacher"].to(dtype)
    student = case["student"].to(dtype).requires_grad_()
    task = case["labels"] // int(case["classes_per_task"])
    channel, (spatial,) = module.attention([teacher], task, module.attention.of_task(task))
    close(channel, case["channel_attention"])
    close(spatial, case["spatial_attention"])
    first, second, positions = module.attention.logits([teacher], task)
    maps = [gates.by_layer(factors, positions, [teacher])[0] for factors in (first, second)]
    close(torch.stack(maps, dim=2), case["gate_logits"])
    close(module.likeliest([teacher], task)[0].to(dtype), case["gate"])
    close(gates.margin_relu([teacher])[0], torch.maximum(case["teacher"], case["margin"]))

    # the golden gate is the argmax, which has no gradient
    monkeypatch.setattr(gates, "noisy_logit", lambda apart, _: apart.detach())
    stream, current = 6, int(case["current_task"])
    stored = case["stored_maps"].to(dtype)[stream:]
    assert torch.equal((torch.arange(len(task)) >= stream) & (task != current), case["replay_old"])
    losses = module([student], [teacher], task, stream, current, [stored], Random(0))
    replay = case["lambda_replay"] * losses.mask_replay
    diversity = case["lambda_diversity"] * losses.diversity
    close(losses.distance, case["distance"])
    close(replay, case["replay_bce"])
    close(diversity, case["diversity"])
    total = losses.distance + replay + diversity
    close(total, case["total"])
    close(gates.to_stored_size(losses.gates[0]).to(dtype), case["maps_to_store"])
    total.backward()
    close(student.grad, case["grad_student"])
    to_maps, to_logits = module.attention.maps[0].weight, module.attention.to_logits[0].weight
    close(to_maps.grad[:, :, : student.shape[1]].mT, case["grad_channel_w1"])
    close(to_logits.grad.mT, case["grad_gate_w"])


def test_gates_of_rounded_logits_open_as_rarely_as_the_softmax_says():
    """What is rounded to bfloat16 still has noise with tails."""
    closed = torch.full((1, 1, 500, 500), -7.0, dtype=torch.bfloat16)
    noisy = gates.noisy_logit(closed / gates.GUMBEL_TEMPERATURE, gates.logistic(closed, Random(0)))
    share = (noisy > 0).float().mean().item()
    assert share == pytest.approx(torch.sigmoid(torch.tensor(-7.0)).item(), rel=0.2)


# Written out

TASKS, STREAM, CURRENT = 3, 4, 1
TASK = torch.tensor([1, 1, 1, 1, 0, 1, 0])  # of the stream's four images and three replayed ones


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
    half, start, made = sum(attention.channels), 0, []
    for layer, x in enumerate(teacher):
        maps, spatial, channels = attention.maps[layer], attention.spatial[layer], x.shape[1]
        pooled = torch.einsum("nij,ni->nj", maps.weight[TASK], x.mean(dim=(2, 3)))
        first, second, third = pooled.chunk(3, dim=1)
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
        made.append(channel[:, :, None, None] + x)
        start += channels
    return made


def logits_slowly(module: FeaturePropagation, teacher: list[Tensor]) -> list[Tensor]:
    """The matrix of an image's task at each position of each layer: `[N, C, 2, H, W]`."""
    every = attention_slowly(module.attention, teacher)
    if "F4" in module.paper:
        return [torch.stack([attention, torch.zeros_like(attention)], dim=2) for attention in every]
    return [
        torch.einsum("ncj,nchw->njhw", linear.weight[TASK], attention).unflatten(1, (-1, 2))
        for linear, attention in zip(module.attention.to_logits, every, strict=True)
    ]


def gate_slowly(logits: Tensor, generator: torch.Generator) -> Tensor:
    difference = logits[:, :, 0] - logits[:, :, 1]
    uniform = torch.rand(difference.shape, generator=generator, dtype=difference.dtype)
    noisy = difference + torch.log(uniform) - torch.log1p(-uniform)
    soft = torch.sigmoid(noisy / gates.GUMBEL_TEMPERATURE)
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


def mask_replay_slowly(logits: Tensor, stored: Tensor, by_paper: bool) -> Tensor:
    scale = logits.shape[-1] // stored.shape[-1]
    full = stored.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    remembered = []
    for pair, kept, task in zip(logits[STREAM:], full, TASK[STREAM:], strict=True):
        if by_paper or task != CURRENT:
            logit = pair[:, 0] - pair[:, 1] if by_paper else pair[:, 0]
            # the logarithms of sigmoid(x) and of 1 - sigmoid(x), also where these are 0 in float64
            likely = kept * F.logsigmoid(logit) + (1 - kept) * F.logsigmoid(-logit)
            remembered.append(-likely.mean())
    return torch.stack(remembered).mean()


def losses_slowly(
    module: FeaturePropagation,
    student: list[Tensor],
    teacher: list[Tensor],
    stored: list[Tensor],
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Means over layers; by F7 the paper sums the distance."""
    paper = module.paper
    of_current = [i for i, task in enumerate(TASK) if task == CURRENT]
    counted = list(range(STREAM)) if "F10" in paper else of_current
    logits = logits_slowly(module, teacher)
    opened = [gate_slowly(each, generator) for each in logits]
    distances = [
        distance_slowly(*maps, "F7" in paper) for maps in zip(student, teacher, opened, strict=True)
    ]
    replays = [
        mask_replay_slowly(*each, "F5" in paper) for each in zip(logits, stored, strict=True)
    ]
    diversities = [diversity_slowly(gate, counted, "F3" in paper) for gate in opened]
    by = 1 if "F7" in paper else len(opened)
    means = (sum(losses) / len(opened) for losses in (replays, diversities))
    return sum(distances) / by, *means, opened


def gradients(
    losses: tuple[Tensor, ...], module: nn.Module, student: list[Tensor]
) -> dict[str, Tensor]:
    module.zero_grad()
    for maps in student:
        maps.grad = None
    (losses[0] + 0.3 * losses[1] + 0.7 * losses[2]).backward()
    own = {name: p.grad.clone() for name, p in module.named_parameters()}
    return own | {f"student {i}": maps.grad.clone() for i, maps in enumerate(student)}


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
    stored = [
        (torch.rand(len(TASK) - STREAM, c, s, s, generator=generator) > 0.5).double()
        for c, s in [(4, 8), (8, 8), (12, 4)]
    ]
    slow = losses_slowly(module, student, teacher, stored, torch.Generator().manual_seed(2))
    expected = gradients(slow, module, student)
    fast = module(student, teacher, TASK, STREAM, CURRENT, stored, Random(2))
    assert all(torch.equal(a.double(), b) for a, b in zip(fast.gates, slow[3], strict=True))
    torch.testing.assert_close(fast[:3], slow[:3])
    torch.testing.assert_close(gradients(fast, module, student), expected)
