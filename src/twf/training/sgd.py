"""Plain SGD, and the batches that it goes through."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def batches(
    count: int, size: int, generator: torch.Generator, keep_last: bool = False
) -> Iterator[Tensor]:
    """The positions 0 to `count - 1` in random order, `size` at a time (int64).

    The last batch is dropped where it is incomplete, unless it is to be kept.
    """
    order = torch.randperm(count, generator=generator, device=generator.device)
    for batch in order.split(size):
        if keep_last or len(batch) == size:
            yield batch


@torch.no_grad()
def sgd_step(parameters: list[torch.nn.Parameter], rate: float) -> None:
    """`theta <- theta - rate * gradient`, and the gradients are gone.

    All methods use SGD without momentum or decay. `torch.optim` would do the same, at the cost of
    seconds per run for importing its compiler.
    """
    trained: list[Tensor] = []
    gradients: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is not None:
            trained.append(parameter)
            gradients.append(parameter.grad)
            parameter.grad = None
    torch._foreach_add_(trained, gradients, alpha=-rate)
