"""GPUs that failed while they were in use: a mark keeps jobs off each until the machine restarts.

The marks lie beside the locks of `twf.gpus.slots`, in a folder of the user's own.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from twf.errors import GpuError, UserError, warn
from twf.files import atomic
from twf.gpus.nvidia import Gpu
from twf.study.hyperparameters import Strict

BOOT = Path("/proc/sys/kernel/random/boot_id")  # another one after each start of the machine


class Mark(Strict):
    """Why a GPU is not used."""

    gpu: str  # its identifier
    name: str
    time: str
    reason: str
    boot: str

    def __str__(self) -> str:
        return f"{self.name} {self.gpu} failed on {self.time} ({self.reason})"


def mark(gpu: Gpu, reason: str) -> Path:
    """Keep later jobs off a GPU; gives the file, whose removal lets them use it again."""
    time = f"{datetime.now():%Y-%m-%d at %H:%M}"
    made = Mark(gpu=gpu.id, name=gpu.name, time=time, reason=reason, boot=_boot())
    path = folder() / f"{file_name(gpu.id)}.lost"
    with atomic(path) as partial:
        partial.write_text(made.model_dump_json(indent=1))
    return path


def marks() -> dict[Path, Mark]:
    """The marks that were made since the machine was started."""
    found = {}
    for path in sorted(_place().glob("*.lost")):
        try:
            read = Mark.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            continue  # just removed, or no mark of ours
        if read.boot == _boot():
            found[path] = read
    return found


def usable(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Those that have not failed; the others are told. Raises `GpuError` where all have."""
    failed = {found.gpu: (path, found) for path, found in marks().items()}
    left = [gpu for gpu in gpus if gpu.id not in failed]
    told = [failed[gpu.id] for gpu in gpus if gpu.id in failed]
    if told and not left:
        raise GpuError(
            f"no GPU is left: {'; '.join(str(found) for _, found in told)}. Restart the machine, "
            f"or delete {', '.join(str(path) for path, _ in told)} to try again, or train on CPU "
            "cores with CUDA_VISIBLE_DEVICES= before the command"
        )
    for path, found in told:
        warn(f"{found}: it is not used until the machine restarts, or {path} is deleted")
    return left


def folder() -> Path:
    """A folder for this user's marks and locks alone, on this machine; we delete nothing in it.

    Raises `UserError` where something else has its name.
    """
    path = _place()
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UserError(f"{path} is not a folder of yours: remove it, or set TMPDIR elsewhere")
    return path


def _place() -> Path:
    return Path(tempfile.gettempdir()) / f"twf-gpus-{os.getuid()}"


def file_name(gpu: str) -> str:
    """A GPU's identifier as (part of) the name of a file."""
    return gpu.replace("/", "-")


def _boot() -> str:
    return BOOT.read_text().strip()
