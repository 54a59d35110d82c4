"""Plain SGD, and the batches that it goes through."""

import math

import torch
from torch import Tensor


def batches(order: Tensor, size: int, keep_last: bool = False) -> list[Tensor]:
    """`order` cut into batches; the last is dropped where incomplete, unless it is to be kept."""
    return [batch for batch in order.split(size) if keep_last or len(batch) == size]


@torch.no_grad()
def sgd_step(
    parameters: list[torch.nn.Parameter],
    rate: float | Tensor,
    velocity: list[Tensor] | None = None,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
) -> None:
    """`theta <- theta - rate * gradient`, and the gradients are gone.

    `weight_decay * theta` is added to the gradient first. With a `velocity` for each parameter,
    `v <- momentum * v + gradient` takes the gradient's place. `rate` may be a scalar tensor.
    `torch.optim` would do the same, at the cost of seconds per run for importing its compiler.
    """
    trained: list[Tensor] = []
    gradients: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is not None:
            trained.append(parameter)
            gradients.append(parameter.grad)
            parameter.grad = None
    if weight_decay:
        torch._foreach_add_(gradients, trained, alpha=weight_decay)
    if velocity is not None:
        torch._foreach_mul_(velocity, momentum)
        torch._foreach_add_(velocity, gradients)
        gradients = velocity
    if isinstance(rate, Tensor):  # a captured step's, which changes without it
        torch._foreach_add_(trained, torch._foreach_mul(gradients, -rate))
    else:
        torch._foreach_add_(trained, gradients, alpha=-rate)


def cosine(epoch: float, epochs: int, start: float, end: float) -> float:
    """The rate at a point of training, falling from `start` to `end` by half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * epoch / epochs)) / 2
