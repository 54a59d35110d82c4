"""The GPUs that jobs may use: those that CUDA shows. No torch here.

CUDA is asked in a process of its own (`python -m twf.gpus.visible`), as a process that has asked
can no longer choose the GPUs that it sees.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from importlib.metadata import version

from twf.errors import UserError

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
NONE = ("", "-1", "NoDevFiles")  # as CUDA_VISIBLE_DEVICES, the last by Slurm: no GPU is meant


def gpus() -> list[str]:
    """The GPUs that CUDA shows here, each by its number or name in `CUDA_VISIBLE_DEVICES`.

    None where PyTorch is built for CPUs only. Raises `UserError` where CUDA fails, or shows none of
    those that `CUDA_VISIBLE_DEVICES` names: who asks for GPUs is not to find out after days that a
    CPU did the work.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if version("torch").endswith("+cpu") or shown in NONE:
        return []
    command = [sys.executable, "-m", "twf.gpus.visible"]
    answer = subprocess.run(command, capture_output=True, text=True)
    error = answer.stderr.strip() if answer.returncode else ""
    count = int(answer.stdout or 0)
    if shown is not None and not count and not error:
        error = f"none of CUDA_VISIBLE_DEVICES={shown} is there"
    if error:
        raise UserError(
            f"CUDA shows no GPU ({error}): mend the driver or CUDA_VISIBLE_DEVICES, or train on "
            "CPU cores with CUDA_VISIBLE_DEVICES= before the command"
        )
    names = shown.split(",") if shown else map(str, range(count))
    return [name.strip() for name, _ in zip(names, range(count), strict=False)]


def driver_count() -> int:
    """How many GPUs CUDA shows to this process, which is bound to them from then on.

    0 without a driver. Ends the process with CUDA's number of an error.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    error = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if error not in (0, NO_DEVICE):
        sys.exit(f"CUDA error {error}")
    return count.value


if __name__ == "__main__":
    print(driver_count())
