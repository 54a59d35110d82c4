"""The device that a job works on, and how many of a user's jobs share a GPU, whoever starts them.

A job holds the lock of a slot as long as its process lives; however that ends, the system frees it.
CUDA is asked in a process of its own (`python -m twf.gpus.devices`), as a process that has asked
can no longer choose the GPUs that it sees.
"""

import contextlib
import ctypes
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from twf import files
from twf.errors import UserError, note
from twf.gpus import cpu

if TYPE_CHECKING:
    import torch

POLL = 2.0  # seconds between two looks for a free slot
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
DRIVER = Path("/proc/driver/nvidia")  # where Linux shows that NVIDIA's driver is loaded
NONE = ("", "-1", "NoDevFiles")  # as CUDA_VISIBLE_DEVICES, the last by Slurm: no GPU is meant

_held: list[tuple[str, FileLock]] = []  # at most one slot


def device_for(threads: int, gpu_slots: int = 1, deterministic: bool = False) -> "torch.device":
    """The device to train on, with PyTorch set up for it: a slot of one GPU, or the CPU.

    `CUDA_VISIBLE_DEVICES` then shows only this GPU. `deterministic` restricts it to algorithms that
    give the same bits each time, as those of a CPU do anyway. Raises `UserError` as `gpus` does.
    """
    shown = gpus()
    if shown:
        os.environ["CUDA_VISIBLE_DEVICES"] = take_slot(shown, gpu_slots)
    import torch

    torch.set_num_threads(threads)
    if not shown:
        cpu.keep_freed_memory()
        return torch.device("cpu")
    torch.backends.cudnn.benchmark = not deterministic  # as steps have fixed shapes
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA is first used
        torch.use_deterministic_algorithms(True)
        # else each tensor is filled before it is written
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return torch.device("cuda")


def take_slot(gpus: Sequence[str], slots: int) -> str:
    """Hold a slot of one of the GPUs, of `slots` each, until this process ends; wait for one.

    The first slot of each GPU goes before the second of any. Who holds a slot already keeps it.
    """
    for attempt in itertools.count() if not _held else ():
        for number, gpu in itertools.product(range(slots), gpus):
            # Slurm may show each job only its own GPU, and call it 0
            job = os.environ.get("SLURM_JOB_ID", "")
            name = f"twf-{os.getuid()}-{job}-{gpu.replace('/', '-')}.{number}.lock"
            path = Path(tempfile.gettempdir(), name)
            lock = FileLock(path, fallback_to_soft=False)  # a soft lock would outlive its process
            with files.writing(path), contextlib.suppress(Timeout):
                lock.acquire(blocking=False)
                _held.append((gpu, lock))
                return gpu
        if attempt == 0:
            note(
                f"waiting for a GPU: {slots} of your jobs on each of {len(gpus)} already; "
                "gpu_slots in params.yaml lets more share one"
            )
        time.sleep(POLL)
    return _held[0][0]


def gpus() -> list[str]:
    """The GPUs that CUDA shows here, each by its number or name in `CUDA_VISIBLE_DEVICES`.

    None where PyTorch is built for CPUs only, with a notice where there seems to be one. Raises
    `UserError` where CUDA fails, or shows none of those that `CUDA_VISIBLE_DEVICES` names, so that
    no CPU does the work in their place.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown in NONE:
        return []
    if version("torch").endswith("+cpu"):
        if DRIVER.exists():
            note(
                "warning: jobs train on CPU cores, as PyTorch is built for these, though NVIDIA's "
                "driver is loaded: `rm -r .venv; UV_TORCH_BACKEND=auto make setup` mends that"
            )
        return []
    command = [sys.executable, "-m", "twf.gpus.devices"]
    answer = subprocess.run(command, capture_output=True, text=True)
    count = int(answer.stdout or 0)
    if answer.returncode or (shown and not count):
        error = answer.stderr.strip() or f"none of CUDA_VISIBLE_DEVICES={shown} is there"
        raise UserError(
            f"CUDA shows no GPU ({error}): mend the driver or CUDA_VISIBLE_DEVICES, or train on "
            "CPU cores with CUDA_VISIBLE_DEVICES= before the command"
        )
    names = shown.split(",") if shown else [str(number) for number in range(count)]
    return [name.strip() for name in names[:count]]


def driver_count() -> int:
    """How many GPUs CUDA shows to this process; it ends with CUDA's number of an error."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:  # no driver
        return 0
    count = ctypes.c_int()
    error = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if error not in (0, NO_DEVICE):
        sys.exit(f"CUDA error {error}")
    return count.value


if __name__ == "__main__":
    print(driver_count())
