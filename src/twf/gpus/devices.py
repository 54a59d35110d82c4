"""The device that a job works on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from twf.errors import UserError
from twf.gpus import cpu, slots, visible

if TYPE_CHECKING:
    import torch

# What PyTorch says where other processes use a GPU, and where it does not fit the driver or GPU.
UNUSABLE = re.compile(
    "CUDA.*(out of memory|busy or unavailable|no kernel image|initializ)|NVIDIA driver|with CUDA en"
)


def device_for(
    name: Literal["auto", "cpu", "cuda"],
    threads: int,
    gpu_slots: int = 1,
    deterministic: bool = False,
) -> torch.device:
    """The device to train on, with PyTorch set up for it: the CPU, or a slot of one GPU.

    `CUDA_VISIBLE_DEVICES` then shows only this GPU. `deterministic` restricts it to algorithms that
    give the same bits each time, as those of a CPU do anyway.

    Raises `UserError` where there is no such device.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    gpus = visible.gpus() if name != "cpu" else []
    if name == "cuda" and not gpus:
        raise UserError("no CUDA device here; leave --device away, or say --device cpu")
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = slots.take(gpus, gpu_slots)
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
    return torch.device("cuda")


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Raise `UserError` where, in the block, PyTorch cannot use a GPU that is well.

    Any other error stays what it is.
    """
    try:
        yield
    except (RuntimeError, AssertionError) as error:  # the latter by a PyTorch for CPUs only
        if not UNUSABLE.search(str(error)):
            raise
        raise UserError(
            f"PyTorch cannot use the GPU ({str(error).strip().splitlines()[0].rstrip('.')}): "
            "nvidia-smi shows its driver and who uses it; where your own jobs do, lower gpu_slots "
            "in params.yaml. CUDA_VISIBLE_DEVICES= before the command trains on CPU cores"
        ) from error
