"""Learning by contrast: CO2L's projection head and its two losses."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.precision import in_float32

PROJECTION = 128  # dimensions of the space in which views are compared


def projection_head(width: int) -> nn.Sequential:
    """From `width` features to `PROJECTION` dimensions, through one hidden layer."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, PROJECTION))


@in_float32
def unit(vectors: Tensor) -> Tensor:
    """Vectors `[n, d]` over their lengths."""
    return F.normalize(vectors, dim=1)


@in_float32
def asymmetric_supcon(z: Tensor, labels: Tensor, current: Tensor, tau: float) -> Tensor:
    """Supervised contrast of unit vectors `z` `[n, d]`, anchored where `current` (bool `[n]`).

    `-tau / 0.07 * mean_i [current_i mean_{p in P(i)} log softmax_{k != i}(z_i . z_k / tau)_p]`,
    with P(i) the others of i's label.
    """
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = (z @ z.T / tau).masked_fill(itself, -torch.inf)
    log_share = F.log_softmax(similarity, dim=1).masked_fill(itself, 0.0)
    positive = (labels[:, None] == labels) & ~itself
    per_anchor = (positive * log_share).sum(dim=1) / positive.sum(dim=1)
    return -(tau / 0.07) * (current * per_anchor).mean()


@in_float32
def relation_distillation(z: Tensor, then: Tensor, kappa: float, kappa_star: float) -> Tensor:
    """Cross-entropy between the relations of `then` (at kappa*) and those of `z` (at kappa).

    Both are unit vectors `[n, d]`; a row's relations are the softmax of its products with others.
    """
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    now = F.log_softmax((z @ z.T / kappa).masked_fill(itself, -torch.inf), dim=1)
    past = F.softmax((then @ then.T / kappa_star).masked_fill(itself, -torch.inf), dim=1)
    return -(past * now.masked_fill(itself, 0.0)).sum(dim=1).mean()
