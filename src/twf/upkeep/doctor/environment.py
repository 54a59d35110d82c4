"""Python, packages, the driver and its GPUs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from twf.gpus import cpu, lost, nvidia, visible
from twf.upkeep.doctor.check import Check

FOR_DEVELOPMENT = {"dev", "services"}  # extras that only tests need
UNASKED = {"kubernetes"}  # extras that `make setup` leaves out


def packages() -> Iterator[Check]:
    """Python and what `pyproject.toml` wants, by its own bounds; extras may be missing."""
    python = platform.python_version()
    bounds = importlib.metadata.metadata("twf")["Requires-Python"]
    said = f"{python}, wanted {bounds}"
    if _within(python, bounds):
        yield Check("python", "ok", said)
    else:
        remedy = "another environment: rm -r .venv && make PYTHON=python3.12 setup"
        yield Check("python", "wrong", said, remedy)
    lacking, unfit, count = [], [], 0
    for requirement in importlib.metadata.requires("twf") or []:
        match = re.fullmatch(
            r"([\w.-]+)(?:\[.*\])? ?\(?([^;)]*)\)?(?:; *extra == ['\"](\w+)['\"])?", requirement
        )
        if match is None or match[3] in FOR_DEVELOPMENT:
            continue
        try:
            found = importlib.metadata.version(match[1])
        except importlib.metadata.PackageNotFoundError:
            if match[3] not in UNASKED:
                lacking.append(match[1])
            continue
        count += 1
        if not _within(found, match[2]):
            unfit.append(f"{match[1]} is {found}, wanted {match[2]}")
    torch = importlib.metadata.version("torch")
    if unfit:
        yield Check("packages", "wrong", "; ".join(unfit), "make setup")
    elif lacking:
        said = f"without {', '.join(lacking)}: enough to train, not for all of the pipeline"
        yield Check("packages", "warning", said, "make setup")
    else:
        yield Check("packages", "ok", f"torch {torch}, and {count - 1} others as wanted")


def _within(found: str, bounds: str) -> bool:
    """Whether a version is within bounds like `>=2.11,<2.14`."""

    def key(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", re.split(r"[+a-z]", text)[0])]

    compare = {
        ">=": lambda a, b: a >= b,
        "<": lambda a, b: a < b,
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
    }
    return all(
        compare[sign](key(found), key(bound))
        for sign, bound in re.findall(r"(>=|<|==|!=) ?([\w.]+)", bounds)
    )


def gpus() -> Iterator[Check]:
    """The driver, the GPUs that it shows, and whether this PyTorch computes on each."""
    found, complaint = nvidia.installed()
    torch = importlib.metadata.version("torch")
    names = ", ".join(dict.fromkeys(gpu.name for gpu in found))
    said = f"{_driver()}, {len(found)} GPUs: {names}"
    if complaint:
        said = f"nvidia-smi -L says: {complaint}" + (f"; {said}" if found else "")
        remedy = "reload the NVIDIA driver; often a restart does"
        yield Check("driver", "warning" if found else "wrong", said, remedy)
    elif found:
        yield Check("driver", "ok", said)
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    usable = visible.visible(found, shown)
    if found and (gone := visible.missing(found, shown)):
        said = f"{', '.join(gone)} of CUDA_VISIBLE_DEVICES is not there"
        remedy = "unset it, or name GPUs as nvidia-smi -L does"
        yield Check("gpus", "warning" if usable else "wrong", said, remedy)
    if not found and not complaint:
        yield Check("gpus", "ok", f"none; jobs train on {cpu.cores()} CPU cores")
    elif found and torch.endswith("+cpu"):
        remedy = "rm -r .venv && UV_TORCH_BACKEND=auto make setup"
        yield Check("gpus", "wrong", f"torch {torch} is built for CPUs alone", remedy)
    elif found and not usable and not gone:
        said = f"CUDA_VISIBLE_DEVICES is {shown!r}, which shows none: jobs train on CPU cores"
        yield Check("gpus", "warning", said, "unset it, to use them")
    else:
        for gpu in usable:
            said = f"torch {torch} on {gpu.name} {gpu.id}"
            if (wrong := nvidia.refuses(gpu)) is None:
                yield Check("gpus", "ok", f"{said}: it computes")
            else:
                remedy = "update the driver, or take a PyTorch built for it: UV_TORCH_BACKEND=auto"
                yield Check("gpus", "wrong", f"{said}: {wrong}", remedy)
    for path, mark in lost.marks().items():
        remedy = f"restart the machine; where the GPU computes again without, rm {path}"
        yield Check("lost gpus", "wrong", f"{mark}: no job takes it", remedy)


def _driver() -> str:
    """The driver's version, as it says itself."""
    path = Path("/proc/driver/nvidia/version")
    match = re.search(r"  (\d+[\d.]+) ", path.read_text()) if path.exists() else None
    return match[1] if match else "version unknown"
