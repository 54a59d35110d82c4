"""How products of matrices and convolutions round."""

import functools
from collections.abc import Callable
from typing import Any, cast, get_args

import torch
from torch import Tensor

from twf.errors import UserError
from twf.gpus.cpu import multiplies_bfloat16
from twf.study.params import Precision


def used(precision: str, device: torch.device) -> Precision:
    """The precision that a choice comes to on a device.

    `auto` is `bf16` on a CPU that multiplies matrices of it, and the default `tf32` elsewhere.
    Raises `UserError` for another name.
    """
    if precision not in get_args(Precision):
        raise UserError(f"no precision {precision!r}; there is {', '.join(get_args(Precision))}")
    if precision == "auto":
        return "bf16" if device.type == "cpu" and multiplies_bfloat16() else "tf32"
    return cast(Precision, precision)


def set_precision(precision: str, device: torch.device) -> Precision:
    """Let float32 products on a GPU round their inputs to TF32, or not. A CPU has no TF32.

    Holds for the process; `bf16` leaves what autocast does not touch at `tf32`. Gives what is
    `used`.
    """
    chosen = used(precision, device)
    rounds = chosen != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = rounds
    torch.backends.cudnn.allow_tf32 = rounds
    return chosen


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """A context in which products are in bfloat16 where `precision` says so.

    Weights stay in float32. On a CPU a weight is cast once for all that a step does with it; on a
    GPU anew for each operation, since the step may be captured in a CUDA graph.
    """
    enabled, cpu = used(precision, device) == "bf16", device.type == "cpu"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=cpu)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The type in which values of a type are added up."""
    return torch.float32 if dtype.itemsize < 4 else dtype


def in_float32(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss outside of autocast, of tensors in float32 at least: of its own products too."""

    def wide(value: Any) -> Any:
        floats = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(at_least_float32(value.dtype)) if floats else value

    @functools.wraps(loss)
    def outside(first: Tensor, *others: Any, **named: Any) -> Tensor:
        with torch.autocast(first.device.type, enabled=False):
            return loss(wide(first), *map(wide, others), **named)

    return outside
