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

GUMBEL_TEMPERATURE = 2 / 3
DIVERSITY_TEMPERATURE = 2.0
NORM = 1e-6  # added to the norms that maps are divided by
HALVED_FROM = 16  # maps this wide or wider are stored at half size


class LayerLoss(NamedTuple):
    """What a layer adds to the loss; `terms` makes the terms of all layers' together."""

    distance: Tensor  # scalar
    forgotten: Tensor | None  # how far from the stored gates each replayed image's are, [N']
    similarity: Tensor  # of each image's open channels to each other's, [N, N]
    gate: Tensor  # [N, C, H, W] in {0, 1}


class FeaturePropagation(nn.Module):
    """The gates of one layer and what they add to the loss.

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
        first, second, positions = self.factors(teacher, task)
        maps = [at_positions(positions, pair, teacher.shape[2:]) for pair in (first, second)]
        return torch.stack(maps, dim=2)

    def factors(self, teacher: Tensor, task: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of both logits, offset and slope, `[N, 2, C]` each; and 1 and spatial attention s at each
        position, `[N, H * W, 2]`. A logit is `offset + slope * s`, a product of the two.

        A linear map W of channel plus spatial attention, `W (c + s 1) = W c + s W 1`, needs no
        product at each position. F4: the paper has logits `(c + s, 0)`.
        """
        channel, spatial = self.channel(teacher, task), self.spatial(teacher, task)
        positions = F.pad(spatial.flatten(1)[:, :, None], (1, 0), value=1.0)
        if self.to_logits is None:
            first = torch.stack([channel, torch.ones_like(channel)], dim=1)
            return first, torch.zeros_like(first), positions
        both = torch.stack([self.to_logits(channel, task), self.to_logits.of_ones(task)], dim=1)
        first, second = both.unflatten(2, (-1, 2)).unbind(3)
        return first, second, positions

    def forward(
        self,
        student: Tensor,
        teacher: Tensor,
        task: Tensor,
        stream: int,
        stored: Tensor | None,
        generator: Random,
    ) -> LayerLoss:
        """For maps `[N, C, H, W]` of images of `task` (`[N]` int64).

        The first `stream` images are new ones; the others are replayed, and their gates were
        `stored` (`[N - stream, C, h, w]`, full or half size).
        """
        first, second, positions = self.factors(teacher, task)
        shape = teacher.shape[2:]
        difference = at_positions(positions, first - second, shape)
        gate = sample_gate(difference, generator)
        distance_of = distance_paper if "F7" in self.paper else distance
        forgotten = None
        if stored is not None:  # F5: the published code compares the first logit
            compared = difference[stream:]
            if "F5" not in self.paper:
                compared = at_positions(positions[stream:], first[stream:], shape)
            forgotten = cross_entropy(compared, stored)
        return LayerLoss(
            distance_of(student, margin_relu(teacher), gate),
            forgotten,
            similarity(gate, normalise="F3" in self.paper),
            gate.detach(),
        )


def terms(
    layers: list[LayerLoss], task: Tensor, stream: int, current: int, paper: frozenset[str]
) -> tuple[Tensor, Tensor, Tensor]:
    """Distance, mask replay and diversity (scalars) of layers together: their means.

    By F7 the paper sums the distance. The published code replays the gates of past tasks alone
    (F5), and lets replayed images of the `current` task count for diversity (F10).
    """
    distances = torch.stack([layer.distance for layer in layers])
    of_past_task = task != current
    replayed = [layer.forgotten for layer in layers if layer.forgotten is not None]
    mask_replay_term = distances.new_zeros(())
    if replayed:
        past = of_past_task[stream:]
        included = torch.ones_like(past) if "F5" in paper else past
        mask_replay_term = mask_replay(torch.stack(replayed), included).mean()
    from_stream = torch.arange(len(task), device=task.device) < stream
    included = from_stream if "F10" in paper else ~of_past_task
    similarities = torch.stack([layer.similarity for layer in layers])
    return (
        distances.sum() if "F7" in paper else distances.mean(),
        mask_replay_term,
        diversity(similarities, included).mean(),
    )


def at_positions(positions: Tensor, factors: Tensor, shape: torch.Size) -> Tensor:
    """`[N, C, H, W]` of `[N, H * W, 2]` and `[N, 2, C]`, for `shape` `(H, W)`.

    As a product of matrices, whose gradients are such products too. Channels come last in memory.
    """
    return (positions @ factors).unflatten(1, shape).permute(0, 3, 1, 2)


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
    noise = generator.uniform(*difference.shape, dtype=precise).logit_()
    gate: Tensor = _StraightThrough.apply(difference + noise)  # type: ignore[no-untyped-call]
    return gate


def likeliest_gate(logits: Tensor) -> Tensor:
    """The gate without noise: open where the first logit wins, or draws. `[N, C, H, W]`."""
    return (logits[:, :, 0] >= logits[:, :, 1]).to(logits.dtype)


def margin_relu(teacher: Tensor) -> Tensor:
    """`max(x, margin)`, with a channel's margin the mean of its negative values over the batch."""
    total = teacher.clamp(max=0).sum(dim=(0, 2, 3), keepdim=True)
    count = (teacher < 0).sum(dim=(0, 2, 3), keepdim=True)
    return torch.maximum(teacher, total / (count + 1e-6))


def distance(student: Tensor, target: Tensor, gate: Tensor) -> Tensor:
    """Eq. 3 as the published code has it (F7).

    Both maps are divided by their norm over the positions; positions with
    `student <= target <= 0` are left out; mean over positions, sum over channels, mean over images.
    """
    result: Tensor = _Distance.apply(student, target, gate)  # type: ignore[no-untyped-call]
    return result


class _Distance(torch.autograd.Function):
    """`distance`, whose gradients in closed form pass memory half as often as autograd's.

    With `n = |s| + NORM` and `u = s / n`: the gradient of s is that of u less its part along u,
    `(g - u |s|^-1 n <g, u>) / n`. The target has none.
    """

    @staticmethod
    def forward(ctx: Any, student: Tensor, target: Tensor, gate: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(student, dim=(2, 3), keepdim=True)
        unit = student / (norm + NORM)
        target = target / (torch.linalg.vector_norm(target, dim=(2, 3), keepdim=True) + NORM)
        included = (unit > target).logical_or_(target > 0)
        difference = (unit - target).mul_(included)
        ctx.save_for_backward(norm, unit, difference, gate)
        ctx.count = len(student) * student.shape[2] * student.shape[3]
        return (difference.square() * gate).sum() / ctx.count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor]:
        norm, unit, difference, gate = ctx.saved_tensors
        scaled = difference * (gradient / ctx.count)
        to_gate = scaled * difference
        to_unit = scaled.mul_(gate).mul_(2)
        along = (to_unit * unit).sum(dim=(2, 3), keepdim=True)
        along = along * (norm + NORM) / norm.clamp(min=torch.finfo(norm.dtype).tiny)
        to_student = torch.addcmul(to_unit, unit, along, value=-1).div_(norm + NORM)
        return to_student.to(unit.dtype), None, to_gate.to(gate.dtype)


def distance_paper(student: Tensor, target: Tensor, gate: Tensor) -> Tensor:
    """Eq. 3 as printed (F7): the squared norm of the gated difference, mean over images."""
    return (gate * (student - target) ** 2).sum(dim=(1, 2, 3)).mean()


def _average(maps: Tensor) -> Tensor:
    """The mean over the positions, `[N, C]`.

    Not by `mean`, whose gradient has the channels first in memory: where they come last, all that
    it meets on its way back would be many times slower.
    """
    return maps.sum(dim=(2, 3)) / (maps.shape[2] * maps.shape[3])


def similarity(gate: Tensor, normalise: bool) -> Tensor:
    """`u_i . u_j / 2` of eq. 7, `[N, N]`, with `u` the spatially averaged gate.

    F3: the paper normalises `u`, so that `|u_i|` is 1.
    """
    average = _average(gate)  # [N, C]
    if normalise:
        average = F.normalize(average, dim=1)
    return average @ average.T / DIVERSITY_TEMPERATURE


def diversity(similarities: Tensor, included: Tensor) -> Tensor:
    """Eq. 7 of each layer, `[L]`, of `[L, N, N]`, over the images that are `included` (`[N]` bool).

    `mean_i logsumexp_j(u_i . u_j / 2) - |u_i|^2 / 2 - log n`. F3: the published code does not
    normalise `u`, and subtracts 1/2 all the same.
    """
    among = similarities.masked_fill(~included, -math.inf)
    n = included.sum()
    spread = torch.logsumexp(among, dim=2).masked_fill(~included, 0.0).sum(dim=1) / n
    return spread - 1 / DIVERSITY_TEMPERATURE - torch.log(n.to(spread.dtype))


def cross_entropy(logits: Tensor, stored: Tensor) -> Tensor:
    """Binary cross-entropy of `logits` `[N, C, H, W]` against stored gates, mean of each image."""
    full = stored.to(logits.dtype)
    if full.shape != logits.shape:
        full = F.interpolate(full, size=logits.shape[-2:])  # nearest neighbour
    losses = F.binary_cross_entropy_with_logits(logits, full, reduction="none")
    return losses.sum(dim=(1, 2, 3)) / losses[0].numel()


def mask_replay(forgotten: Tensor, included: Tensor) -> Tensor:
    """Eq. 9's second term of each layer, `[L]`, of `[L, N]`: the mean of the images `included`.

    Zero where none is.
    """
    chosen = forgotten.masked_fill(~included, 0.0)
    return chosen.sum(dim=1) / included.sum().clamp(min=1)


def stored_size(size: int) -> int:
    """The side at which gates of a map of `size` x `size` are stored."""
    return size // 2 if size >= HALVED_FROM else size


def to_stored_size(gate: Tensor) -> Tensor:
    """The gates `[N, C, H, W]` at the size they are stored at, by nearest neighbour."""
    return gate[:, :, ::2, ::2] if gate.shape[-1] >= HALVED_FROM else gate
