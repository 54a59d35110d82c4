"""The GPUs that jobs may use: those that CUDA shows. No torch here.

CUDA is asked in a process of its own (`python -m twf.gpus.visible`), as a process that has asked
can no longer choose the GPUs that it sees, and as a broken driver may never answer.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from importlib.metadata import version
from typing import NamedTuple

from twf.errors import GpuError

PATIENCE = 180.0  # seconds for CUDA to answer
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
NONE = ("", "-1", "NoDevFiles")  # as CUDA_VISIBLE_DEVICES, the last by Slurm: no GPU is meant


class Gpu(NamedTuple):
    """A GPU, by its word in `CUDA_VISIBLE_DEVICES` (a number or an identifier), and its name."""

    id: str
    name: str


def gpus() -> list[Gpu]:
    """The GPUs that CUDA shows here; none where PyTorch is built for CPUs only.

    Raises `GpuError` where CUDA fails, or shows none of those that `CUDA_VISIBLE_DEVICES` names:
    who asks for GPUs is not to find out after days that a CPU did the work.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if version("torch").endswith("+cpu") or shown in NONE:
        return []
    try:
        words = [sys.executable, "-m", "twf.gpus.visible"]
        asked = subprocess.run(words, capture_output=True, timeout=PATIENCE)
        names = asked.stdout.decode().splitlines()
        error = asked.stderr.decode().strip() if asked.returncode else ""
    except subprocess.TimeoutExpired:
        names, error = [], f"no answer in {PATIENCE:.0f} seconds"
    if shown is not None and not names and not error:
        error = f"none of CUDA_VISIBLE_DEVICES={shown} is there"
    if error:
        raise GpuError(
            f"CUDA shows no GPU ({error}): mend the driver or CUDA_VISIBLE_DEVICES, or train on "
            "CPU cores with CUDA_VISIBLE_DEVICES= before the command"
        )
    ids = shown.split(",") if shown else map(str, range(len(names)))
    return [Gpu(word.strip(), name) for word, name in zip(ids, names, strict=False)]


def driver_names() -> list[str]:
    """The names of the GPUs that CUDA shows to this process, which is bound to them from then on.

    None without a driver. Raises `OSError` with CUDA's number of the error.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    error = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if error not in (0, NO_DEVICE):
        raise OSError(f"CUDA error {error}")
    names = []
    for number in range(count.value):
        cuda.cuDeviceGetName(name, len(name), number)
        names.append(name.value.decode())
    return names


if __name__ == "__main__":
    try:
        print("".join(f"{name}\n" for name in driver_names()), end="")
    except OSError as error:
        sys.exit(str(error))
