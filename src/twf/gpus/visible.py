"""The GPUs that jobs may use, as `CUDA_VISIBLE_DEVICES` shows them. No torch here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal

from twf.errors import GpuError, UserError, warn
from twf.gpus import lost, nvidia
from twf.gpus.nvidia import Gpu

WHOLE = ("GPU-", "MIG-")  # how the identifiers of GPUs, and of instances, begin


def gpus() -> list[Gpu]:
    """The GPUs that jobs may use: `CUDA_VISIBLE_DEVICES` shows them, and they have not failed.

    None where PyTorch is built for CPUs alone. Those that are missing are told. Raises `GpuError`
    where there are GPUs, or some are named, but none can be used: who has GPUs does not want to
    find out after days that a CPU did the work.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if version("torch").endswith("+cpu") or shown == "":
        return []
    found, wrong = nvidia.installed()
    usable = visible(found, shown)
    gone = missing(found, shown)
    wanted = shown is None or bool(gone)
    there = found or any(nvidia.DRIVER.glob("*")) or any(word.startswith(WHOLE) for word in gone)
    if wanted and there and not usable:
        said = [] if found else [f"nvidia-smi -L says: {wrong or 'nothing'}"]
        said += [f"{word} of CUDA_VISIBLE_DEVICES is not there" for word in gone]
        raise GpuError(
            f"none of the GPUs can be used: {'; '.join(said)}. Mend the driver (often a restart of "
            "the machine does) or CUDA_VISIBLE_DEVICES, or train on CPU cores with "
            "CUDA_VISIBLE_DEVICES= before the command"
        )
    if wrong:
        rest = "the GPUs that it lists are used" if found else "no GPU is used"
        warn(f"nvidia-smi -L says: {wrong}; {rest}")
    for word in gone:
        warn(f"{word} of CUDA_VISIBLE_DEVICES is not there, and not used")
    return lost.usable(usable)


def gpus_for(device: Literal["auto", "cpu", "cuda"]) -> list[Gpu]:
    """The GPUs that `--device` stands for here; none means the CPU.

    Raises `UserError` as `gpus` does, and where there is no such device.
    """
    found = gpus() if device != "cpu" else []
    if device == "cuda" and not found:
        raise UserError("no CUDA device here; leave --device away, or say --device cpu")
    return found


def hold_jobs_to(chosen: Sequence[Gpu]) -> None:
    """Let the processes that this one starts see these GPUs, by identifier.

    Once a GPU is gone, its number would mean the next one, or none: a CPU.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.id for gpu in chosen)


def kind(device: Literal["auto", "cpu", "cuda"]) -> Literal["cpu", "cuda"]:
    """What `--device` stands for here. Raises `UserError` as `gpus_for` does."""
    return "cuda" if gpus_for(device) else "cpu"


def visible(found: Sequence[Gpu], shown: str | None) -> list[Gpu]:
    """Those of `found` that `CUDA_VISIBLE_DEVICES` shows, by number or by (start of) identifier.

    As for CUDA, what follows a word that names none does not count; but an identifier may be that
    of a GPU which is gone, and the others are used. Numbers are in the order of the buses, as
    `nvidia-smi` has them (`CUDA_DEVICE_ORDER=PCI_BUS_ID`).
    """
    if shown is None:
        return list(found)
    chosen: list[Gpu] = []
    for word in _words(shown):
        if word.isdigit():
            named = list(found[int(word) : int(word) + 1])
        else:
            named = [gpu for gpu in found if word and gpu.id.startswith(word)]
        if len(named) != 1 and (named or not word.startswith(WHOLE)):
            break
        chosen += named
    return list(dict.fromkeys(chosen))


def missing(found: Sequence[Gpu], shown: str | None) -> list[str]:
    """The words of `CUDA_VISIBLE_DEVICES` that mean a GPU which is not there; -1 means none."""
    meant = [word for word in _words(shown) if word.isdigit() or word.startswith(WHOLE)]
    return [word for word in meant if not visible(found, word)]


def _words(shown: str | None) -> list[str]:
    return [word.strip() for word in (shown or "").split(",")]
