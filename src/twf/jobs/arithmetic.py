"""How a job calculates: in which precision, and whether it may in the way that it is to."""

from __future__ import annotations

from collections.abc import Callable

import torch

from twf.errors import UserError, warn
from twf.gpus import cpu
from twf.learning.precision import set_precision
from twf.learning.step import CaptureError
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


def captured_if_possible(work: Callable[[str], None], execution: str) -> None:
    """Do `work(execution)`; without a CUDA graph, and from its start, where capturing one fails.

    What it writes then names the execution that it had.
    """
    try:
        work(execution)
        return
    except CaptureError as error:
        inner = "compiled" if execution.startswith("compiled") else "plain"
        warn(f"a step could not be captured ({error}): starting over with --execution {inner}")
    torch.cuda.empty_cache()
    work(inner)
