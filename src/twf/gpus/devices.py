"""The device that a job works on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from twf.errors import GpuError, warn
from twf.gpus import cpu, nvidia, slots, visible
from twf.gpus.nvidia import Gpu

if TYPE_CHECKING:
    import torch

# What PyTorch says where other processes use a GPU that is well.
CROWDED = re.compile("out of memory|busy or unavailable")


def device_for(
    name: Literal["auto", "cpu", "cuda"],
    threads: int,
    gpu_slots: int = 1,
    deterministic: bool = False,
    tried: Path | None = None,
) -> torch.device:
    """The device to train on, with PyTorch set up for it: the CPU, or a slot of one GPU.

    `CUDA_VISIBLE_DEVICES` then shows this GPU alone. `deterministic` restricts it to algorithms
    that give the same bits each time, as those of a CPU do anyway. `tried` is a file of the GPUs
    that earlier attempts of this job took: another one is taken, unless all were tried.

    Raises `UserError` where there is no such device, `GpuError` where PyTorch cannot use it.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    gpus = visible.gpus_for(name)
    if gpus:
        gpu = _take(gpus, gpu_slots, tried)
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
    if (refusal := _refusal()) is not None:
        raise _error(gpu, refusal)
    return torch.device("cuda")


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Raise `GpuError` where a GPU fails in the block that had computed before.

    That is so where its memory is full, and where another process cannot compute on it either. Any
    other error, as one in our own code, stays what it is.
    """
    try:
        yield
    except RuntimeError as error:
        gpu, said = slots.held(), str(error)
        if gpu is None or not re.search("cuda|cudnn", said, flags=re.IGNORECASE):
            raise
        if not CROWDED.search(said):
            refusal = nvidia.compute_error(gpu)
            if refusal is None or CROWDED.search(refusal):
                raise
        raise _error(gpu, said) from error


def _take(gpus: Sequence[Gpu], gpu_slots: int, tried: Path | None) -> Gpu:
    """A slot of a GPU that no earlier attempt of this job took; of any where each was taken."""
    seen = tried is not None and tried.exists()
    before = tried.read_text(encoding="utf-8").split() if tried is not None and seen else []
    left = [gpu for gpu in gpus if gpu.id not in before]
    if before and left:
        warn(f"this job did not finish on {', '.join(before)}: another GPU is used")
    gpu = slots.take(left or gpus, gpu_slots)
    if tried is not None:
        with contextlib.suppress(OSError):  # a full disk
            tried.parent.mkdir(parents=True, exist_ok=True)
            # before its use, which may kill us
            tried.write_text(" ".join([*before, gpu.id]), encoding="utf-8")
    return gpu


def _refusal() -> str | None:
    """Why PyTorch cannot compute on the GPU that it sees; None where it can."""
    import torch

    try:
        torch.ones(8, device="cuda").sum().item()
    except (RuntimeError, AssertionError) as error:  # the latter where it is built for CPUs alone
        return str(error)
    return None


def _error(gpu: Gpu, said: str) -> GpuError:
    """What is wrong with a GPU, and the remedy, from PyTorch's message."""
    import torch

    reason = said.strip().splitlines()[0].rstrip(".")
    if CROWDED.search(said):
        return GpuError(
            f"{gpu.name} {gpu.id} has too little memory left, or another process has it for itself "
            f"({reason}): nvidia-smi shows who uses it; where that is your jobs, lower gpu_slots "
            "in params.yaml"
        )
    return GpuError(
        f"PyTorch {torch.__version__} cannot compute on {gpu.name} {gpu.id} ({reason}). A further "
        "attempt takes another GPU, if there is one. Where PyTorch cannot compute on any, mend "
        "driver or PyTorch (`twf doctor` looks at both); else the kernel's log (dmesg) may say "
        "what is wrong with this GPU. CUDA_VISIBLE_DEVICES= before the command trains on CPU cores"
    )
