"""Slots of GPUs: how many jobs share one, whoever starts them.

A job holds the lock of a slot as long as its process lives; however that ends, the system frees the
slot. A user's jobs know of each other, through a folder of the user's own.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO

from twf.errors import UserError
from twf.machine import Gpu

POLL = 1.0  # seconds between two looks for a free slot

_held: list[tuple[Gpu, IO[str]]] = []  # at most one; the file stays open as long as this process


def take(gpus: Sequence[Gpu], slots: int) -> Gpu:
    """Hold a slot of the GPU with the fewest jobs, of `slots` each, until this process ends.

    Where all are taken, say so and wait. A process that holds one already keeps it.
    """
    if _held:
        return _held[0][0]
    folder = _folder()
    said = False
    while not _take_free(folder, gpus, slots):
        if not said:
            print(
                f"waiting for a GPU: {slots} of your jobs on each of {len(gpus)} already; "
                "gpu_slots in params.yaml lets more share one",
                file=sys.stderr,
                flush=True,
            )
            said = True
        time.sleep(POLL)
    return _held[0][0]


def _take_free(folder: Path, gpus: Sequence[Gpu], slots: int) -> bool:
    """Hold a slot if one is free: of the GPU with the most of them, the first of equals."""
    with (folder / "choosing.lock").open("a") as choosing, ExitStack() as others:
        fcntl.flock(choosing, fcntl.LOCK_EX)  # so that two who choose do not see each other's looks
        free: dict[Gpu, list[IO[str]]] = {gpu: [] for gpu in gpus}
        for gpu in gpus:
            for number in range(slots):
                slot = (folder / f"{gpu.id.replace('/', '-')}.{number}.lock").open("a")
                if _locked(slot):
                    free[gpu].append(slot)
                else:
                    slot.close()
        chosen = max(gpus, key=lambda gpu: len(free[gpu]))
        if free[chosen]:
            _held.append((chosen, free[chosen].pop(0)))
        for unused in chain(*free.values()):
            others.enter_context(unused)
        return bool(_held)


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder() -> Path:
    """A folder for this user's locks alone, on this machine; nothing in it is ever deleted by us.

    Raises `UserError` where something else has its name.
    """
    folder = Path(tempfile.gettempdir()) / f"twf-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UserError(f"{folder} is not a folder of yours: remove it, or set TMPDIR elsewhere")
    return folder
