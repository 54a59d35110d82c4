"""Slots of GPUs: how many of a user's jobs share one, whoever starts them.

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

from filelock import FileLock, Timeout

from twf import files
from twf.errors import note

POLL = 2.0  # seconds between two looks for a free slot

_held: list[tuple[str, FileLock]] = []  # at most one


def take(gpus: Sequence[str], slots: int) -> str:
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
