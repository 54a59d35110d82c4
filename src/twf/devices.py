"""The device that a job works on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from twf import machine, slots
from twf.errors import UserError

if TYPE_CHECKING:
    import torch


def device_for(
    name: Literal["auto", "cpu", "cuda"],
    threads: int,
    gpu_slots: int = 1,
    deterministic: bool = False,
) -> torch.device:
    """The device to train on, with PyTorch set up for it: the CPU, or a slot of one GPU.

    `CUDA_VISIBLE_DEVICES` then shows this GPU alone. `deterministic` lets it use algorithms alone
    that give the same bits each time, as those of a CPU do anyway. Raises `UserError` where there
    is no such device, or PyTorch cannot use it.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    kind = machine.kind(name)
    gpu = None
    if kind == "cuda":
        gpu = slots.take(machine.gpus(), gpu_slots)
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu.id
    import torch

    torch.set_num_threads(threads)
    if gpu is not None and not torch.cuda.is_available():
        raise UserError(
            f"there is a {gpu.name}, but this PyTorch ({torch.__version__}) cannot use it: mend "
            "driver or PyTorch, or hide it with CUDA_VISIBLE_DEVICES= before the command"
        )
    if gpu is not None and deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA is first used
        torch.use_deterministic_algorithms(True)
    return torch.device(kind)
