"""Feature propagation: which units of the sibling's map the learner should match, and the loss.

One `FeaturePropagation` per layer. `N` images, `T` tasks, `C` channels; equation numbers are the
paper's. Where paper and published code differ, a switch decides (F3 to F5, F7, F10).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.models.attention import ChannelAttention, SpatialAttention, TaskLinear
from twf.learning.randomness import Random

Pair = tuple[Tensor, Tensor]

GUMBEL_TEMPERATURE = 2 / 3
DIVERSITY_TEMPERATURE = 2.0
HALVED_FROM = 16  # maps this wide or wider are stored at half size


class PropagationLoss(NamedTuple):
    """The three terms of a layer, unweighted (scalars), and the gates `[N, C, H, W]` in {0, 1}."""

    distance: Tensor
    mask_replay: Tensor
    diversity: Tensor
    gate: Tensor


class FeaturePropagation(nn.Module):
    """The gates of one layer and their loss terms.

    `paper` are the switches that stand at what the paper says; the others follow the published
    code.
    """

    def __init__(self, tasks: int, channels: int, paper: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.paper = paper
        self.channel = ChannelAttention(tasks, channels)
        self.spatial = SpatialAttention(tasks, channels)
        # F4: a task's own map to two logits per unit; rows 2c and 2c + 1 are those of channel c
        self.to_logits = None if "F4" in paper else TaskLinear(tasks, channels, 2 * channels, 1.0)

    def logits(self, teacher: Tensor, task: Tensor) -> Tensor:
        """The two gate logits of each unit, `[N, C, 2, H, W]`; the gate opens on the first."""
        offset, slope, spatial = self.factors(teacher, task)
        maps = [at_positions(o, s, spatial) for o, s in zip(offset, slope, strict=True)]
        return torch.stack(maps, dim=2)

    def factors(self, teacher: Tensor, task: Tensor) -> tuple[Pair, Pair, Tensor]:
        """Offsets and slopes `[N, C]`, and spatial attention s: logits are `offset + slope * s`.

        A linear map W of channel plus spatial attention, `W (c + s 1) = W c + s W 1`, needs no
        product at each position. F4: the paper has logits `(c + s, 0)`.
        """
        channel, spatial = self.channel(teacher, task), self.spatial(teacher, task)
        if self.to_logits is None:
            zeros, ones = torch.zeros_like(channel), torch.ones_like(channel)
            return (channel, zeros), (ones, zeros), spatial
        offset, slope = self.to_logits(channel, task), self.to_logits.of_ones(task)
        return pair(offset), pair(slope), spatial

    def forward(
        self,
        student: Tensor,
        teacher: Tensor,
        task: Tensor,
        stream: int,
        current: int,
        stored: Tensor | None,
        generator: Random,
    ) -> PropagationLoss:
        """The terms for maps `[N, C, H, W]` of images of `task` (`[N]` int64).

        The first `stream` images are new ones of the `current` task; the others are replayed, and
        their gates were `stored` (`[N - stream, C, h, w]`, full or half size). The published code
        replays the gates of past tasks alone (F5), and lets replayed images of the current task
        count for diversity (F10).
        """
        offset, slope, spatial = self.factors(teacher, task)
        difference = at_positions(offset[0] - offset[1], slope[0] - slope[1], spatial)
        gate = sample_gate(difference, generator)
        distance_of = distance_paper if "F7" in self.paper else distance
        distance_term = distance_of(student, margin_relu(teacher), gate)
        of_past_task = task != current
        if stored is None:
            replay_term = distance_term.new_zeros(())
        elif "F5" in self.paper:
            every = torch.ones_like(of_past_task[stream:])
            replay_term = mask_replay(difference[stream:], stored, every)
        else:
            first = at_positions(offset[0][stream:], slope[0][stream:], spatial[stream:])
            replay_term = mask_replay(first, stored, of_past_task[stream:])
        from_stream = torch.arange(len(task), device=task.device) < stream
        included = from_stream if "F10" in self.paper else ~of_past_task
        diversity_term = diversity(gate, included, normalise="F3" in self.paper)
        return PropagationLoss(distance_term, replay_term, diversity_term, gate.detach())


def pair(rows: Tensor) -> Pair:
    """Those of the first and of the second logit: from `[N, 2 * C]` to `[N, C]` each."""
    first, second = rows.unflatten(1, (-1, 2)).unbind(2)
    return first, second


def at_positions(offset: Tensor, slope: Tensor, spatial: Tensor) -> Tensor:
    """`offset + slope * spatial`, `[N, C, H, W]`, of `[N, C]` and `[N, 1, H, W]`.

    As a product of matrices, whose gradients are such products too. Channels come last in memory.
    """
    positions = spatial.flatten(1)  # [N, H * W]
    factors = torch.stack([torch.ones_like(positions), positions], dim=2)
    maps = factors @ torch.stack([offset, slope], dim=1)  # [N, H * W, C]
    return maps.unflatten(1, spatial.shape[2:]).permute(0, 3, 1, 2)


class _StraightThrough(torch.autograd.Function):
    """1 where `noisy > 0`, else 0, with the gradient of `sigmoid(noisy / GUMBEL_TEMPERATURE)`."""

    @staticmethod
    def forward(ctx: Any, noisy: Tensor) -> Tensor:
        ctx.save_for_backward(noisy)
        # not `noisy.clone().gt_(0)`: compiled by PyTorch 2.11, that has no gradient
        return (noisy > 0).to(noisy.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (noisy,) = ctx.saved_tensors
        soft = (noisy / GUMBEL_TEMPERATURE).sigmoid_()
        return torch.ops.aten.sigmoid_backward(gradient, soft).div_(GUMBEL_TEMPERATURE)


def sample_gate(difference: Tensor, generator: Random) -> Tensor:
    """Hard binary Gumbel-softmax with straight-through gradients, eq. 4: `[N, C, H, W]`.

    `difference` is that of the two logits. The difference of two Gumbel variables is logistic, so
    one draw per unit does.
    """
    # bfloat16 has 256 numbers of [1/2, 1): its noise would have no tails
    precise = torch.promote_types(difference.dtype, torch.float32)
    uniform = generator.uniform(*difference.shape, dtype=precise)
    noise = torch.empty_like(difference, dtype=precise).copy_(uniform).logit_()
    gate: Tensor = _StraightThrough.apply(noise.add_(difference))  # type: ignore[no-untyped-call]
    return gate


def likeliest_gate(logits: Tensor) -> Tensor:
    """The gate without noise: open where the first logit wins, or draws. `[N, C, H, W]`."""
    return (logits[:, :, 0] >= logits[:, :, 1]).to(logits.dtype)


def margin_relu(teacher: Tensor) -> Tensor:
    """`max(x, margin)`, with a channel's margin the mean of its negative values over the batch."""
    negative = teacher.clamp(max=0)
    total = negative.sum(dim=(0, 2, 3), keepdim=True)
    count = -negative.sign_().sum(dim=(0, 2, 3), keepdim=True)
    return torch.maximum(teacher, total / (count + 1e-6))


def distance(student: Tensor, target: Tensor, gate: Tensor) -> Tensor:
    """Eq. 3 as the published code has it (F7).

    Both maps are divided by their norm over the positions; positions with
    `student <= target <= 0` are left out; mean over positions, sum over channels, mean over images.
    """
    student, target = _unit_norm(student), _unit_norm(target)
    included = (student > target) | (target > 0)
    difference = (student - target) * included
    return _average(gate * difference**2).sum(dim=1).mean()


def distance_paper(student: Tensor, target: Tensor, gate: Tensor) -> Tensor:
    """Eq. 3 as printed (F7): the squared norm of the gated difference, mean over images."""
    return (gate * (student - target) ** 2).sum(dim=(1, 2, 3)).mean()


def _unit_norm(maps: Tensor) -> Tensor:
    return maps / (torch.linalg.vector_norm(maps, dim=(2, 3), keepdim=True) + 1e-6)


def _average(maps: Tensor) -> Tensor:
    """The mean over the positions, `[N, C]`.

    Not by `mean`, whose gradient has the channels first in memory: where they come last, all that
    it meets on its way back would be many times slower.
    """
    return maps.sum(dim=(2, 3)) / (maps.shape[2] * maps.shape[3])


def diversity(gate: Tensor, included: Tensor, normalise: bool = False) -> Tensor:
    """Eq. 7 over the images that are `included` (`[N]` bool).

    `mean_i logsumexp_j(u_i . u_j / 2) - |u_i|^2 / 2 - log n`, with `u` the spatially averaged gate.
    F3: the paper normalises `u`, so that `|u_i|` is 1; the published code does not, and subtracts
    1/2 all the same.
    """
    average = _average(gate)  # [N, C]
    if normalise:
        average = F.normalize(average, dim=1)
    similarity = average @ average.T / DIVERSITY_TEMPERATURE
    similarity = similarity.masked_fill(~included, -math.inf)
    n = included.sum()
    spread = torch.logsumexp(similarity, dim=1).masked_fill(~included, 0.0).sum() / n
    return spread - 1 / DIVERSITY_TEMPERATURE - torch.log(n.to(spread.dtype))


def mask_replay(logits: Tensor, stored: Tensor, included: Tensor) -> Tensor:
    """Eq. 9's second term: binary cross-entropy of `logits` `[N, C, H, W]` against stored gates.

    Mean over the units of the images that are `included` (`[N]` bool); zero where none is.
    """
    full = stored.to(logits.dtype)
    if full.shape != logits.shape:
        full = F.interpolate(full, size=logits.shape[-2:])  # nearest neighbour
    losses = F.binary_cross_entropy_with_logits(logits, full, reduction="none")
    per_image = _average(losses).mean(dim=1).masked_fill(~included, 0.0)
    return per_image.sum() / included.sum().clamp(min=1)


def stored_size(size: int) -> int:
    """The side at which gates of a map of `size` x `size` are stored."""
    return size // 2 if size >= HALVED_FROM else size


def to_stored_size(gate: Tensor) -> Tensor:
    """The gates `[N, C, H, W]` at the size they are stored at, by nearest neighbour."""
    return gate[:, :, ::2, ::2] if gate.shape[-1] >= HALVED_FROM else gate
