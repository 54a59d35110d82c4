"""The precision in which a job calculates."""

from __future__ import annotations

import torch

from twf.errors import UserError
from twf.gpus import cpu
from twf.learning.precision import set_precision
from twf.study.params import Precision


def set_arithmetic(precision: str, execution: str, device: torch.device) -> Precision:
    """`set_precision`, for steps that are executed so.

    Raises `UserError` for compiled steps in bfloat16 on a CPU that gains nothing by it. There,
    PyTorch 2.13 was seen to give other values of TwF's terms and NaN; in float32 it does not.
    """
    chosen = set_precision(precision, device)
    compiled = execution.startswith("compiled")
    slow = device.type == "cpu" and not cpu.multiplies_bfloat16()
    if compiled and chosen == "bf16" and slow:
        raise UserError(
            "compiled steps in bfloat16 are wrong on a CPU whose products it does not speed up "
            "(docs/speed.md): --execution plain, or precision: fp32"
        )
    return chosen
