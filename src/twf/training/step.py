"""One training step: loss, gradients, update, buffer. Nothing of it returns to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from twf.methods.base import Batch, Method, Step
from twf.training.sgd import sgd_step

Gradients = Callable[[Batch], Step]  # adds the loss's gradients to the parameters'


def training_step(
    method: Method[Any],
    gradients: Gradients,
    parameters: list[nn.Parameter],
    batch: Batch,
    rate: float,
) -> dict[str, Tensor]:
    """Learn from one stream batch, then offer it to the buffer. Gives each term's value."""
    step = gradients(batch)
    sgd_step(parameters, rate)
    if method.buffer is not None and step.store is not None:
        method.buffer.insert(**step.store)
    return {name: value.detach() for name, value in step.terms.items()}


def plain(method: Method[Any]) -> Gradients:
    """The definition: operation by operation, as the method is written."""

    def gradients(batch: Batch) -> Step:
        step = method.loss(batch)
        torch.stack(list(step.terms.values())).sum().backward()
        return step

    return gradients


# Ways to execute the same step.
EXECUTIONS: dict[str, Callable[[Method[Any]], Gradients]] = {"plain": plain}
