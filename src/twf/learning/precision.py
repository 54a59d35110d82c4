"""How products of matrices and convolutions round."""

from __future__ import annotations

from typing import get_args

import torch

from twf.errors import UserError
from twf.study.params import Precision


def set_precision(precision: str) -> None:
    """Let float32 products on a GPU round their inputs to TF32, or not. A CPU has no TF32.

    Holds for the process; `bf16` leaves what autocast does not touch at `tf32`.
    Raises `UserError` for another name.
    """
    if precision not in get_args(Precision):
        raise UserError(f"no precision {precision!r}; there is {', '.join(get_args(Precision))}")
    rounds = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = rounds
    torch.backends.cudnn.allow_tf32 = rounds


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """A context in which products are in bfloat16 where `precision` says so.

    Weights stay in float32; copies of them are not kept between operations, since the same step may
    be captured in a CUDA graph.
    """
    enabled = precision == "bf16"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)
