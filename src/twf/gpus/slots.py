"""Slots of GPUs: how many jobs share one, whoever starts them.

A job holds the lock of a slot as long as its process lives; however that ends, the system frees the
slot. A user's jobs know of each other by these locks, and of other users' by what they use.
"""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Sequence
from itertools import chain
from typing import IO, NamedTuple

from twf.gpus import lost, nvidia
from twf.gpus.nvidia import Gpu

POLL = 1.0  # seconds between two looks for a free slot
POLL_MEMORY = 10.0  # the same for free memory, which takes longer to find out

_held: list[tuple[Gpu, IO[str]]] = []  # at most one; the file stays open as long as this process


class _Wait(NamedTuple):
    """Why no slot can be had now, and the seconds until it is worth another look."""

    reason: str
    seconds: float


def take(gpus: Sequence[Gpu], slots: int) -> Gpu:
    """Hold a slot of one of the GPUs, of `slots` each, until this process ends.

    The GPU has a free slot, and of its memory half of a slot's share (1 / `slots` of it) is free,
    whoever uses the rest. Of such ones it is one with the fewest of this user's jobs; of these,
    the one with the least `Usage.load`; of equals, the first. A GPU of which the usage is not
    known passes for unused.

    Where there is none, say so and wait. A process that holds a slot already keeps it. Raises
    `UserError` where all GPUs have failed.
    """
    if _held:
        return _held[0][0]
    said = set()
    while isinstance(found := _take_free(lost.usable(gpus), slots), _Wait):
        if found.reason not in said:
            print(f"waiting for a GPU: {found.reason}", file=sys.stderr, flush=True)
        said.add(found.reason)
        time.sleep(found.seconds)
    return found


def held() -> Gpu | None:
    """The GPU of which this process holds a slot."""
    return _held[0][0] if _held else None


def _take_free(gpus: Sequence[Gpu], slots: int) -> Gpu | _Wait:
    """Hold a slot of the best GPU, if there is one."""
    folder = lost.folder()
    with (folder / "choosing.lock").open("a") as choosing:
        fcntl.flock(choosing, fcntl.LOCK_EX)  # so that two who choose do not see each other's looks
        free: dict[Gpu, list[IO[str]]] = {gpu: [] for gpu in gpus}
        for gpu in gpus:
            for number in range(slots):
                slot = (folder / f"{lost.file_name(gpu.id)}.{number}.lock").open("a")
                if _locked(slot):
                    free[gpu].append(slot)
                else:
                    slot.close()
        best = _best({gpu: len(locks) for gpu, locks in free.items()}, slots)
        if isinstance(best, Gpu):
            _held.append((best, free[best].pop(0)))
        for unused in chain(*free.values()):
            unused.close()
        return best


def _best(free: dict[Gpu, int], slots: int) -> Gpu | _Wait:
    """The GPU to take a slot of, by how many of its `slots` are free on each."""
    if not any(free.values()):
        reason = f"{slots} of your jobs on each of {len(free)} already; "
        return _Wait(reason + "gpu_slots in params.yaml lets more share one", POLL)
    used = nvidia.usage()
    least = 1 / (2 * slots)  # of its memory
    roomy = [
        gpu
        for gpu, count in free.items()
        if count and (gpu.id not in used or used[gpu.id].free_mib >= least * used[gpu.id].total_mib)
    ]
    if not roomy:
        reason = f"none with a free slot has {least:.0%} of its memory free; nvidia-smi shows who "
        reason += "uses it, and a larger gpu_slots in params.yaml asks for less"
        return _Wait(reason, POLL_MEMORY)
    return min(roomy, key=lambda gpu: (-free[gpu], used[gpu.id].load if gpu.id in used else 0.0))


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
