"""What NVIDIA's driver and a fresh PyTorch say about the GPUs.

The driver is asked through NVML, the library that comes with it (Python module `pynvml`).
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

DRIVER = Path("/proc/driver/nvidia/gpus")  # a folder in it for each GPU that the driver has
PATIENCE = 180.0  # seconds for NVML to answer, or for PyTorch to be imported and to use a GPU


class Gpu(NamedTuple):
    """An NVIDIA GPU, or an instance of one (MIG), by CUDA's identifier and name for it."""

    id: str
    name: str


class Usage(NamedTuple):
    """How much of a GPU is used by all processes, those of other users included."""

    free: int  # bytes of memory
    total: int  # bytes of memory
    busy: float  # the fraction of the last sampling period in which it computed, 0 to 1

    @property
    def load(self) -> float:
        """The fractions of memory and of time in use, added: 0 to 2."""
        return 1 - self.free / self.total + self.busy


def installed() -> tuple[dict[Gpu, Usage | None], str]:
    """The GPUs that answer, with their usage where it is known; and what is wrong with others.

    GPUs that this process has no permission for, as those of other jobs of a cluster, are left out.
    A GPU that is partitioned (MIG) is represented by its instances.
    """
    answers: list[tuple[dict[Gpu, Usage | None], str]] = []
    # in a thread, as a broken driver may never answer
    thread = threading.Thread(target=lambda: answers.append(_ask_nvml()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return answers[0] if answers else ({}, f"no answer in {PATIENCE:.0f} seconds")


def compute_error(gpu: Gpu) -> str | None:
    """Why PyTorch cannot compute on a GPU, tried in another process; None where it can."""
    code = "import torch; assert torch.ones(8, device='cuda').sum().item() == 8.0"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": gpu.id},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        encoding="utf-8",
    )
    try:
        _, said = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()  # but not waited for: in a broken driver no signal may reach it
        return f"no answer in {PATIENCE:.0f} seconds"
    return (said.strip().splitlines() or ["it died"])[-1] if process.returncode else None


def _ask_nvml() -> tuple[dict[Gpu, Usage | None], str]:
    import pynvml  # type: ignore[import-untyped]

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError_LibraryNotFound:
        return dict.fromkeys(_by_driver_files()), ""
    except pynvml.NVMLError as error:
        return {}, str(error)
    found: dict[Gpu, Usage | None] = {}
    wrong = [] if count else ["no GPU was found"]
    for number in range(count):
        try:
            whole = pynvml.nvmlDeviceGetHandleByIndex(number)
            model = pynvml.nvmlDeviceGetName(whole)
            for handle in _instances(pynvml, whole) or [whole]:
                name = pynvml.nvmlDeviceGetName(handle)
                name = name if name.startswith(model) else f"{model} {name}"
                found[Gpu(pynvml.nvmlDeviceGetUUID(handle), name)] = _usage(pynvml, handle)
        except pynvml.NVMLError_NoPermission:
            continue
        except pynvml.NVMLError as error:
            wrong.append(f"GPU {number}: {error}")
    pynvml.nvmlShutdown()
    return found, "; ".join(wrong)


def _instances(pynvml: Any, whole: Any) -> list[Any]:
    """The instances of a GPU; none where it is not partitioned."""
    found: list[Any] = []
    with contextlib.suppress(pynvml.NVMLError_NotSupported):
        for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(whole)):
            with contextlib.suppress(pynvml.NVMLError_NotFound):
                found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, number))
    return found


def _usage(pynvml: Any, handle: Any) -> Usage | None:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError_NotSupported:
        return None
    try:
        busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except pynvml.NVMLError:
        busy = 0.0  # instances have no such counter
    return Usage(memory.free, memory.total, busy) if memory.total else None


def _by_driver_files() -> list[Gpu]:
    """The GPUs by the driver's own files, where a container has no NVML; without instances."""
    found = []
    for file in sorted(DRIVER.glob("*/information")):
        values = dict(
            re.findall(r"^(.+?):\s+(.+?)\s*$", file.read_text(encoding="utf-8"), flags=re.M)
        )
        found.append(Gpu(values["GPU UUID"], values["Model"]))
    return found
