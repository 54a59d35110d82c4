"""The device that a job works on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from twf.errors import GpuError
from twf.gpus import lost, nvidia, slots, visible
from twf.gpus.nvidia import Gpu

if TYPE_CHECKING:
    import torch

# What other processes on a GPU can do to one that is well.
CROWDED = re.compile("out of memory|busy or unavailable")


def device_for(
    name: Literal["auto", "cpu", "cuda"],
    threads: int,
    gpu_slots: int = 1,
    deterministic: bool = False,
) -> torch.device:
    """The device to train on, with PyTorch set up for it: the CPU, or a slot of one GPU.

    `CUDA_VISIBLE_DEVICES` then shows this GPU alone. `deterministic` lets it use algorithms alone
    that give the same bits each time, as those of a CPU do anyway. Raises `UserError` where there
    is no such device, or PyTorch cannot use it; `GpuError` where it could use another one.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    gpus = visible.gpus_for(name)
    if gpus:
        gpu = slots.take(gpus, gpu_slots)
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu.id
    import torch

    torch.set_num_threads(threads)
    if not gpus:
        return torch.device("cpu")
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA is first used
        torch.use_deterministic_algorithms(True)
        # else each tensor is filled before it is written
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if (refusal := _refusal()) is not None:
        raise _unusable(gpu, [other for other in gpus if other != gpu], refusal)
    return torch.device("cuda")


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Tell apart why a GPU fails in the block, where it had computed before.

    Raises `GpuError` where its memory is full, and where it does not compute in another process
    either: then it is lost, and no later job takes it. Any other error stays what it is.
    """
    try:
        yield
    except RuntimeError as error:
        gpu, said = slots.held(), str(error)
        if gpu is None or not re.search("cuda|cudnn", said, flags=re.IGNORECASE):
            raise
        if CROWDED.search(said):
            raise _crowded(gpu, said) from error
        still = nvidia.refuses(gpu)
        if still is None or CROWDED.search(still):
            raise
        raise _lost(gpu, said) from error


def _refusal() -> str | None:
    """What PyTorch says when it is to compute on the GPU that it sees; None where it does."""
    import torch

    try:
        torch.ones(8, device="cuda").sum().item()
    except (RuntimeError, AssertionError) as error:  # the latter where it is built for CPUs alone
        return str(error)
    return None


def _unusable(gpu: Gpu, others: Sequence[Gpu], said: str) -> GpuError:
    """What is wrong where PyTorch cannot begin to use a GPU: with the GPU, or with PyTorch.

    To be tried again in any case: on a cluster, another node may do.
    """
    import torch

    if CROWDED.search(said):
        return _crowded(gpu, said)
    if any(nvidia.refuses(other) is None for other in others):
        return _lost(gpu, said)
    return GpuError(
        f"there is a {gpu.name}, but this PyTorch ({torch.__version__}) cannot use it "
        f"({_first_line(said)}): mend driver or PyTorch (`twf doctor` looks at both), or hide it "
        "with CUDA_VISIBLE_DEVICES= before the command"
    )


def _crowded(gpu: Gpu, said: str) -> GpuError:
    return GpuError(
        f"{gpu.name} {gpu.id} has too little memory left, or another process has it for itself "
        f"({_first_line(said)}): nvidia-smi shows who uses it; where that is your jobs, lower "
        "gpu_slots in params.yaml"
    )


def _lost(gpu: Gpu, said: str) -> GpuError:
    path = lost.mark(gpu, _first_line(said))
    return GpuError(
        f"{gpu.name} {gpu.id} does not compute any more ({_first_line(said)}). No job takes it "
        f"until the machine restarts, or {path} is deleted; the kernel's log (dmesg) may say why. "
        "The same command goes on with another GPU, if there is one"
    )


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0].rstrip(".")
