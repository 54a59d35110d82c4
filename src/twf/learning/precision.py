"""How products of matrices and convolutions round."""

from __future__ import annotations

from typing import cast, get_args

import torch

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
