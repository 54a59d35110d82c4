"""Herding (Welling, 2009): exemplars whose mean stays closest to the mean of all."""

import torch
from torch import Tensor


def herd(features: Tensor, count: int) -> Tensor:
    """The order in which examples are picked: each brings the picked ones' mean nearest to all's.

    `features`: `[N, C]`. Gives at most `count` distinct positions, int64.
    """
    mean, total = features.mean(dim=0), torch.zeros_like(features[0])
    left = torch.ones(len(features), dtype=torch.bool, device=features.device)
    picked: list[Tensor] = []
    for i in range(min(count, len(features))):
        cost = torch.linalg.vector_norm(mean - (features + total) / (i + 1), dim=1)
        best = cost.masked_fill(~left, torch.inf).argmin()
        left[best] = False
        total = total + features[best]
        picked.append(best)
    return torch.stack(picked)
