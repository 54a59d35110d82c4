"""One training step: loss, gradients, update, buffer. Nothing of it returns to the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from twf.methods.base import Batch, Method
from twf.training.sgd import sgd_step


def training_step(
    method: Method[Any], parameters: list[nn.Parameter], batch: Batch, rate: float
) -> dict[str, Tensor]:
    """Learn from one stream batch, then offer it to the buffer. Gives each term's value."""
    step = method.loss(batch)
    torch.stack(list(step.terms.values())).sum().backward()
    sgd_step(parameters, rate)
    if method.buffer is not None and step.store is not None:
        method.buffer.insert(**step.store)
    return {name: value.detach() for name, value in step.terms.items()}
