"""The device that a job works on, and how many of a user's jobs share a GPU, whoever starts them.

A job holds the lock of a slot as long as its process lives; however that ends, the system frees it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from filelock import FileLock, Timeout

from twf import files
from twf.errors import UserError, note
from twf.gpus import cpu, visible

if TYPE_CHECKING:
    import torch

POLL = 2.0  # seconds between two looks for a free slot

_held: list[tuple[str, FileLock]] = []  # at most one slot


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
        os.environ["CUDA_VISIBLE_DEVICES"] = take_slot(gpus, gpu_slots)
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


def take_slot(gpus: Sequence[str], slots: int) -> str:
    """Hold a slot of one of the GPUs, of `slots` each, until this process ends.

    The first slot of each GPU goes before the second of any. Where none is free, say so and wait. A
    process that holds a slot already keeps it. Raises `UserError` where a lock cannot be made.
    """
    waiting = False
    while not _held:
        for number, gpu in product(range(slots), gpus):
            name = f"twf-{os.getuid()}-{gpu.replace('/', '-')}.{number}.lock"
            path = Path(tempfile.gettempdir(), name)
            lock = FileLock(path, fallback_to_soft=False)  # a soft lock would outlive its process
            with files.writing(path), contextlib.suppress(Timeout):
                lock.acquire(blocking=False)
                _held.append((gpu, lock))
                break
        else:
            if not waiting:
                note(
                    f"waiting for a GPU: {slots} of your jobs on each of {len(gpus)} already; "
                    "--gpu-slots, or gpu_slots in params.yaml, lets more share one"
                )
            waiting = True
            time.sleep(POLL)
    return _held[0][0]
