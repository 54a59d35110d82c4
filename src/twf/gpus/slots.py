"""Slots of GPUs: how many jobs share one, whoever starts them.

A job holds the lock of a slot as long as its process lives; however that ends, the system frees the
slot. A user's jobs see each other by these locks, and other users' jobs by the memory and time they
use.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from twf.errors import UserError
from twf.gpus import nvidia
from twf.gpus.nvidia import Gpu, Usage

if TYPE_CHECKING:
    from filelock import FileLock

POLL = 2.0  # seconds between two looks for a free slot
IDLE = Usage(free=1, total=1, busy=0.0)  # as a GPU counts whose usage is unknown

_held: list[tuple[Gpu, FileLock]] = []  # at most one, held as long as this process lives


def take(gpus: Sequence[Gpu], slots: int) -> Gpu:
    """Hold a slot of one of the GPUs, of `slots` each, until this process ends.

    A GPU qualifies if it has a free slot and half of a slot's share of its memory (1 / `slots`) is
    free, whoever uses the rest. Of these, one with the fewest of this user's jobs is taken; of
    equals, the one with the least `Usage.load`; of equals again, the first. A GPU whose usage is
    unknown counts as idle.

    Where none qualifies, say so and wait. A process that holds a slot already keeps it.
    """
    if _held:
        return _held[0][0]
    said = set()
    while isinstance(found := _take_free(gpus, slots), str):
        if found not in said:
            print(f"waiting for a GPU: {found}", file=sys.stderr, flush=True)
        said.add(found)
        time.sleep(POLL)
    return found


def held() -> Gpu | None:
    """The GPU of which this process holds a slot."""
    return _held[0][0] if _held else None


def _take_free(gpus: Sequence[Gpu], slots: int) -> Gpu | str:
    """Hold a slot of the best GPU, and give it; or the reason to wait."""
    from filelock import FileLock, Timeout

    folder = _folder()
    free: dict[Gpu, list[FileLock]] = {gpu: [] for gpu in gpus}
    # one chooses at a time, as trying a lock takes it
    with FileLock(folder / "choosing.lock", fallback_to_soft=False):
        for gpu in gpus:
            for number in range(slots):
                file = folder / f"{gpu.id.replace('/', '-')}.{number}.lock"
                slot = FileLock(file, fallback_to_soft=False)  # which would outlive its process
                try:
                    slot.acquire(blocking=False)
                except Timeout:
                    continue
                free[gpu].append(slot)
        best = _best({gpu: len(locks) for gpu, locks in free.items()}, slots)
        if isinstance(best, Gpu):
            _held.append((best, free[best].pop(0)))
        for unused in chain(*free.values()):
            unused.release()
    return best


def _best(free: dict[Gpu, int], slots: int) -> Gpu | str:
    """The GPU to take a slot of, given the number of free slots on each; or the reason to wait."""
    if not any(free.values()):
        return (
            f"{slots} of your jobs on each of {len(free)} already; --gpu-slots, or gpu_slots in "
            "params.yaml, lets more share one"
        )
    usage, _ = nvidia.installed()
    used = {gpu: usage.get(gpu) or IDLE for gpu in free}
    least = 1 / (2 * slots)  # of its memory
    roomy = [g for g, count in free.items() if count and used[g].free >= least * used[g].total]
    if not roomy:
        return (
            f"none with a free slot has {least:.0%} of its memory free; nvidia-smi shows who uses "
            "it, and a larger gpu_slots in params.yaml asks for less"
        )
    return min(roomy, key=lambda gpu: (-free[gpu], used[gpu].load))


def _folder() -> Path:
    """A folder for this user's locks on this machine; nothing in it is ever deleted.

    Raises `UserError` where something else has its name.
    """
    path = Path(tempfile.gettempdir()) / f"twf-gpus-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UserError(f"{path} is not a folder of yours: remove it, or set TMPDIR elsewhere")
    return path
