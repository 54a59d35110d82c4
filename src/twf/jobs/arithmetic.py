"""How a job calculates: in which precision, and whether it may in the way that it is to."""

from __future__ import annotations

import torch

from twf.errors import UserError
from twf.gpus import cpu
from twf.learning.precision import set_precision
from twf.study.params import Precision


def set_arithmetic(precision: str, execution: str, device: torch.device) -> Precision:
    """`set_precision`, for steps that are executed so.

    Raises `UserError` for compiled steps in bfloat16 on a CPU without AMX. There, PyTorch 2.13 was
    seen to give other values of TwF's terms and NaN, with avx512_bf16; in float32 it does not.
    """
    chosen = set_precision(precision, device)
    compiled = execution.startswith("compiled")
    if compiled and chosen == "bf16" and device.type == "cpu" and not cpu.has_amx():
        raise UserError(
            "compiled steps in bfloat16 are wrong on a CPU without AMX (docs/speed.md): "
            "--execution plain, or precision: fp32"
        )
    return chosen
