"""The GPUs that jobs may use, as `CUDA_VISIBLE_DEVICES` shows them. No torch here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal

from twf.errors import GpuError, UserError, warn
from twf.gpus import nvidia
from twf.gpus.nvidia import Gpu

WHOLE = ("GPU-", "MIG-")  # how the identifiers of GPUs, and of instances, begin


def gpus() -> list[Gpu]:
    """The GPUs that jobs may use, as `look` finds them; a warning for each that is missing."""
    usable, unusable = look()
    for text in unusable:
        warn(text)
    unseen = "CUDA_VISIBLE_DEVICES" not in os.environ and not version("torch").endswith("+cpu")
    if unseen and not usable and not unusable:
        warn(
            f"no NVIDIA driver is found, neither its library NVML nor {nvidia.DRIVER}: the CPU is "
            "used. Where there is a GPU, install its driver, or show it to this container"
        )
    return usable


def look() -> tuple[list[Gpu], list[str]]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` shows, and a text for each that cannot be used.

    None where PyTorch is built for CPUs alone. Raises `GpuError` where there are GPUs, or some are
    named, but none can be used: who has GPUs does not want to find out after days that a CPU did
    the work.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if version("torch").endswith("+cpu") or shown == "":
        return [], []
    found, wrong = nvidia.installed()
    usable, gone = visible(list(found), shown)
    wanted = shown is None or bool(gone)
    there = found or any(nvidia.DRIVER.glob("*")) or any(word.startswith(WHOLE) for word in gone)
    said = [f"the NVIDIA driver says: {wrong} (GPUs left: {len(usable)})"] if wrong else []
    said += [f"{word} of CUDA_VISIBLE_DEVICES is not there, and not used" for word in gone]
    if wanted and there and not usable:
        raise GpuError(
            f"none of the GPUs can be used: {'; '.join(said) or 'none answers'}. Mend the driver "
            "(often a restart of the machine does) or CUDA_VISIBLE_DEVICES, or train on CPU cores "
            "with CUDA_VISIBLE_DEVICES= before the command"
        )
    return usable, said


def gpus_for(device: Literal["auto", "cpu", "cuda"]) -> list[Gpu]:
    """The GPUs that `--device` means here; none means the CPU.

    Raises `UserError` where there is no such device, and `GpuError` as `look` does.
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
    """What `--device` means here. Raises the errors of `gpus_for`."""
    return "cuda" if gpus_for(device) else "cpu"


def visible(found: Sequence[Gpu], shown: str | None) -> tuple[list[Gpu], list[str]]:
    """Those of `found` that `CUDA_VISIBLE_DEVICES` shows, and its words for GPUs that are gone.

    It names them by number or by (start of) identifier. As for CUDA, what follows a word that names
    no GPU is ignored; except that an identifier may be of a GPU that is gone, and the others are
    used. Numbers are in the order of the buses, as in `nvidia-smi`
    (`CUDA_DEVICE_ORDER=PCI_BUS_ID`); -1 means none.
    """
    if shown is None:
        return list(found), []
    chosen: list[Gpu] = []
    gone, valid = [], True
    for word in (word.strip() for word in shown.split(",")):
        whole = word.startswith(WHOLE)
        if word.isdigit():
            named = list(found[int(word) : int(word) + 1])
        else:
            named = [gpu for gpu in found if word and gpu.id.startswith(word)]
        if len(named) != 1 and (whole or word.isdigit()):
            gone.append(word)
        valid &= len(named) == 1 or (whole and not named)
        chosen += named if valid else []
    return list(dict.fromkeys(chosen)), gone
