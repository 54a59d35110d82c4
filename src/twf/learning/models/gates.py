"""Feature propagation: which units of the sibling's map the learner should match, and the loss.

`N` images, `T` tasks, `C` channels; equation numbers are the paper's. Where paper and published
code differ, a switch decides (F3 to F5, F7, F10).
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.models.attention import Attention, Logits
from twf.learning.precision import at_least_float32, in_float32
from twf.learning.randomness import Random

GUMBEL_TEMPERATURE = 2 / 3
DIVERSITY_TEMPERATURE = 2.0
NORM = 1e-6  # added to the norms that maps are divided by
HALVED_FROM = 16  # maps this wide or wider are stored at half size


class Losses(NamedTuple):
    """What all layers together add to the loss, before its weights."""

    distance: Tensor  # scalar, as the next two
    mask_replay: Tensor
    diversity: Tensor
    gates: list[Tensor]  # bool [N, C, H, W] of each layer


class FeaturePropagation(nn.Module):
    """The gates of all layers, of `channels` each, and what they add to the loss.

    `paper` are the switches that stand at what the paper says; the others follow the published
    code.
    """

    def __init__(
        self, tasks: int, channels: list[int], paper: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self.paper = paper
        self.attention = Attention(tasks, channels, to_logits="F4" not in paper)
        self.layer_of: Tensor  # whose channel it is: zeros and ones, [L, C] of all channels
        rows = [torch.ones(1, c) for c in channels]
        self.register_buffer("layer_of", torch.block_diag(*rows), persistent=False)

    def likeliest(self, teacher: list[Tensor], task: Tensor) -> list[Tensor]:
        """The gates without noise, bool `[N, C, H, W]`: the first logit is no smaller."""
        logits = self.attention.logits(teacher, task)
        apart = by_layer(logits.first - logits.second, logits.positions, teacher)
        return [difference >= 0 for difference in apart]

    def forward(
        self,
        student: list[Tensor],
        teacher: list[Tensor],
        task: Tensor,
        stream: int,
        current: int,
        stored: list[Tensor] | None,
        generator: Random,
    ) -> Losses:
        """For each layer's maps `[N, C, H, W]` of images of `task` (`[N]` int64).

        The first `stream` images are new ones; the others are replayed, and their gates were
        `stored` (`[N - stream, C, h, w]`, full or half size).
        """
        noise = [logistic(maps, generator) for maps in teacher]
        logits, old = self.attention.logits(teacher, task), task != current
        return losses(
            student, teacher, logits, noise, stored, old, self.layer_of, stream, self.paper
        )


def losses(
    student: list[Tensor],
    teacher: list[Tensor],
    logits: Logits,
    noise: list[Tensor],
    stored: list[Tensor] | None,
    old: Tensor,
    layer_of: Tensor,
    stream: int,
    paper: frozenset[str],
) -> Losses:
    """Losses and gates by tensors alone: without weights and draws.

    Shapes as in `FeaturePropagation.forward`; `noise` has those of `teacher`, `layer_of` `[L, C]`.
    `old`, bool `[N]`, are images of past tasks. By F7 the paper sums the distance over layers. The
    published code replays the gates of past tasks alone (F5), and lets replayed images of the
    current task count for diversity (F10).
    """
    first, second, positions = logits
    apart = by_layer((first - second) / GUMBEL_TEMPERATURE, positions, teacher)
    noisy = [noisy_logit(a, n) for a, n in zip(apart, noise, strict=True)]
    gates = [logit > 0 for logit in noisy]
    pairs = [
        gated_distance(s, target, logit, gate, "F7" in paper)
        for s, target, logit, gate in zip(student, margin_relu(teacher), noisy, gates, strict=True)
    ]
    distances, shares = zip(*pairs, strict=True)
    distance = torch.stack(distances)
    if stored is None:
        mask_replay = distance.new_zeros(())
    else:  # F5: the published code compares the first logit
        compared = first - second if "F5" in paper else first
        replayed = by_layer(compared[stream:], positions[stream:], teacher)
        included = torch.ones_like(old[stream:]) if "F5" in paper else old[stream:]
        mask_replay = cross_entropy(replayed, stored, included)
    left_out = torch.arange(len(old), device=old.device) >= stream if "F10" in paper else old
    similarities = similarity(torch.cat(shares, dim=1), layer_of, normalise="F3" in paper)
    return Losses(
        distance.sum() if "F7" in paper else distance.mean(),
        mask_replay,
        diversity(similarities, left_out).mean(),
        gates,
    )


def by_layer(factors: Tensor, positions: Tensor, maps: list[Tensor]) -> list[Tensor]:
    """`[N, C, H, W]` of each layer, of `[N, 2, C]` and `[N, P, 2]` of all layers together.

    As a product of matrices, whose gradients are such products too. Channels come last in memory.
    """
    shapes = [layer.shape[1:] for layer in maps]
    channels, places = [c for c, _, _ in shapes], [h * w for _, h, w in shapes]
    parts = zip(shapes, positions.split(places, dim=1), factors.split(channels, dim=2), strict=True)
    return [torch.bmm(p, f).unflatten(1, hw).permute(0, 3, 1, 2) for (_, *hw), p, f in parts]


def logistic(maps: Tensor, generator: Random) -> Tensor:
    """A logistic number for each unit: the difference of two Gumbel variables, in one draw."""
    # bfloat16 has 256 numbers of [1/2, 1): its noise would have no tails
    return generator.uniform(*maps.shape, dtype=at_least_float32(maps.dtype)).logit_()


def noisy_logit(apart: Tensor, noise: Tensor) -> Tensor:
    """What eq. 4 has the sigmoid of, `apart` being the logits' difference, over the temperature."""
    return torch.add(apart, noise, alpha=1 / GUMBEL_TEMPERATURE)


def margin_relu(teacher: list[Tensor]) -> list[Tensor]:
    """`max(x, margin)` of each layer, with a channel's margin the mean of its negative values."""
    over, precise = (0, 2, 3), at_least_float32(teacher[0].dtype)
    negative = torch._foreach_clamp_max(teacher, 0.0)
    total = [maps.sum(over, keepdim=True) for maps in negative]
    count = [(maps < 0).sum(over, keepdim=True, dtype=precise) for maps in teacher]
    margin = torch._foreach_div(total, torch._foreach_add(count, 1e-6))
    return [torch.maximum(x, least) for x, least in zip(teacher, margin, strict=True)]


def gated_distance(
    student: Tensor, target: Tensor, noisy: Tensor, gate: Tensor, by_paper: bool
) -> tuple[Tensor, Tensor]:
    """Eq. 3 (a scalar), and which share of each channel's gates is open, `[N, C]`.

    All maps are `[N, C, H, W]`; a gate (bool) is open where `noisy` is above 0. Gradients pass it
    straight through, as if it were `sigmoid(noisy)` (eq. 4).

    As the published code has it (F7), both maps are divided by their norm over the positions, and
    positions with `student <= target <= 0` are left out; mean over positions, sum over channels,
    mean over images. `by_paper`: the squared norm of the gated difference, mean over images.
    """
    inputs = (student, target, noisy, gate, by_paper)
    result: tuple[Tensor, Tensor] = _GatedDistance.apply(*inputs)  # type: ignore[no-untyped-call]
    return result


class _GatedDistance(torch.autograd.Function):
    """`gated_distance`, whose gradients in closed form pass memory half as often as autograd's.

    With `n = |s| + NORM` and `u = s / n`, the gradient of s is `(g - s <g, s> / (n |s|)) / n`, g
    being that of u. The target has none.
    """

    @staticmethod
    def forward(
        ctx: Any, student: Tensor, target: Tensor, noisy: Tensor, gate: Tensor, by_paper: bool
    ) -> tuple[Tensor, Tensor]:
        norm = n = None
        ctx.count = len(student)
        if by_paper:
            difference = student - target
        else:
            ctx.count *= student.shape[2] * student.shape[3]
            norm = torch.linalg.vector_norm(student, dim=(2, 3), keepdim=True)
            n = norm + NORM
            of_target = torch.linalg.vector_norm(target, dim=(2, 3), keepdim=True) + NORM
            difference = torch.addcdiv(student / n, target, of_target, value=-1)
            either = torch.maximum(difference, target)
            difference = where_positive(either, difference)
        ctx.save_for_backward(student, norm, n, difference, noisy)
        distance = where_positive(noisy, difference).square_().sum(dtype=noisy.dtype) / ctx.count
        return distance, gate.mean(dim=(2, 3), dtype=noisy.dtype)

    @staticmethod
    def backward(
        ctx: Any, to_distance: Tensor, to_share: Tensor
    ) -> tuple[Tensor, None, Tensor, None, None]:
        student, norm, n, difference, noisy = ctx.saved_tensors
        scale = to_distance * (2 / ctx.count)
        to_share = to_share[:, :, None, None] / (noisy.shape[2] * noisy.shape[3])
        to_gate = torch.addcmul(to_share, difference.square(), scale, value=0.5)
        to_noisy = torch.ops.aten.sigmoid_backward(to_gate, noisy.sigmoid())
        to_student = where_positive(noisy, difference)
        if n is not None:
            along = (to_student * student).sum(dim=(2, 3), keepdim=True)
            along = along / (n * norm).clamp(min=torch.finfo(norm.dtype).tiny)
            to_student = torch.addcmul(to_student, student, along, value=-1)
            scale = scale / n
        return to_student.mul_(scale).to(student.dtype), None, to_noisy, None, None


def where_positive(condition: Tensor, values: Tensor) -> Tensor:
    """`values` where `condition` is above 0, else 0; passes memory once, without a mask."""
    return torch.ops.aten.threshold_backward(values, condition, 0)


@in_float32
def similarity(shares: Tensor, layer_of: Tensor, normalise: bool) -> Tensor:
    """`u_i . u_j / 2` of eq. 7 for each layer, `[L, N, N]`, with `u` the spatially averaged gates.

    `shares` `[N, C]` are those of all layers, and `layer_of` `[L, C]` says whose each channel is.
    F3: the paper normalises `u`, so that `|u_i|` is 1.
    """
    each = layer_of[:, None] * shares  # [L, N, C], 0 where a channel is another layer's
    products = (each.flatten(0, 1) @ shares.T).unflatten(0, each.shape[:2])
    if normalise:
        squares = products.diagonal(dim1=1, dim2=2)
        norm = squares.clamp(min=torch.finfo(squares.dtype).tiny).sqrt()
        products = products / (norm[:, :, None] * norm[:, None, :])
    return products / DIVERSITY_TEMPERATURE


@in_float32
def diversity(similarities: Tensor, left_out: Tensor) -> Tensor:
    """Eq. 7 of each layer, `[L]`, of `[L, N, N]`, without the images `left_out` (bool `[N]`).

    `mean_i logsumexp_j(u_i . u_j / 2) - |u_i|^2 / 2 - log n`. F3: the published code does not
    normalise `u`, and subtracts 1/2 all the same.
    """
    n = (~left_out).sum()
    among = similarities.masked_fill(left_out, -math.inf)
    spread = torch.logsumexp(among, dim=2).masked_fill(left_out, 0.0).sum(dim=1) / n
    return spread - 1 / DIVERSITY_TEMPERATURE - torch.log(n.to(spread.dtype))


def cross_entropy(logits: list[Tensor], stored: list[Tensor], included: Tensor) -> Tensor:
    """Eq. 9's second term: binary cross-entropy of logits `[N, C, H, W]` against stored gates.

    A scalar: the mean over units, over the images `included` (bool `[N]`), and over layers. Zero
    where no image is.
    """
    precise = at_least_float32(logits[0].dtype)
    weight = included / (included.sum(dtype=precise).clamp(min=1) * len(logits))
    weights = torch._foreach_div([weight] * len(logits), [layer[0].numel() for layer in logits])
    terms = []
    for layer, gate, each in zip(logits, stored, weights, strict=True):
        full = gate.to(precise)
        if full.shape != layer.shape:
            full = F.interpolate(full, size=layer.shape[-2:])  # nearest neighbour
        inputs = (layer.to(precise), full, each[:, None, None, None])
        terms.append(F.binary_cross_entropy_with_logits(*inputs, reduction="sum"))
    return torch.stack(terms).sum()


def stored_size(size: int) -> int:
    """The side at which gates of a map of `size` x `size` are stored."""
    return size // 2 if size >= HALVED_FROM else size


def to_stored_size(gate: Tensor) -> Tensor:
    """The gates `[N, C, H, W]` at the size they are stored at, by nearest neighbour."""
    if gate.shape[-1] < HALVED_FROM:
        return gate
    end = 2 * stored_size(gate.shape[-1])  # of an odd side, the last line is left out
    return gate[:, :, :end:2, :end:2]
