"""The device that a job works on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from twf.errors import GpuError, UserError
from twf.gpus import cpu, slots, visible
from twf.gpus.visible import Gpu

if TYPE_CHECKING:
    import torch

# What PyTorch says where other processes use a GPU that is well.
CROWDED = re.compile("out of memory|busy or unavailable")


def device_for(
    name: Literal["auto", "cpu", "cuda"],
    threads: int,
    gpu_slots: int = 1,
    deterministic: bool = False,
) -> torch.device:
    """The device to train on, with PyTorch set up for it: the CPU, or a slot of one GPU.

    `CUDA_VISIBLE_DEVICES` then shows only this GPU. `deterministic` restricts it to algorithms that
    give the same bits each time, as those of a CPU do anyway.

    Raises `UserError` where there is no such device, `GpuError` where PyTorch cannot use it.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    gpus = visible.gpus() if name != "cpu" else []
    if name == "cuda" and not gpus:
        raise UserError("no CUDA device here; leave --device away, or say --device cpu")
    if gpus:
        gpu = slots.take(gpus, gpu_slots)
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu.id
    import torch

    torch.set_num_threads(threads)
    if not gpus:
        cpu.keep_freed_memory()
        return torch.device("cpu")
    torch.backends.cudnn.benchmark = not deterministic  # steps have fixed shapes: docs/speed.md
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA is first used
        torch.use_deterministic_algorithms(True)
        # else each tensor is filled before it is written
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    _require_computing(gpu)
    return torch.device("cuda")


def _require_computing(gpu: Gpu) -> None:
    """Raise `GpuError` where PyTorch cannot compute on the GPU that this process sees."""
    import torch

    try:
        torch.ones(8, device="cuda").sum().item()
    except (RuntimeError, AssertionError) as error:  # the latter where it is built for CPUs only
        raise GpuError(
            f"PyTorch {torch.__version__} cannot compute on {gpu.name} {gpu.id} "
            f"({_first_line(error)}): nvidia-smi shows who uses it, and `twf doctor` whether "
            "PyTorch fits the driver. CUDA_VISIBLE_DEVICES= before the command trains on CPU cores"
        ) from None


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Raise `GpuError` where, in the block, a GPU is too full or another process holds it.

    Any other error stays what it is.
    """
    try:
        yield
    except RuntimeError as error:
        if "CUDA" not in str(error) or not CROWDED.search(str(error)):
            raise
        raise GpuError(
            "the GPU has too little memory left, or another process holds it "
            f"({_first_line(error)}): nvidia-smi shows who uses it; where your own jobs do, lower "
            "gpu_slots in params.yaml"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
