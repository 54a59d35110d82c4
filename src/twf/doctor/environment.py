"""Python, packages, the driver and its GPUs."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from twf import machine
from twf.doctor.check import Check

FOR_DEVELOPMENT = {"dev", "services"}  # extras that only tests need
PATIENCE = 180.0  # seconds for PyTorch to be imported and to use a GPU


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
        count += 1
        try:
            found = importlib.metadata.version(match[1])
        except importlib.metadata.PackageNotFoundError:
            lacking.append(match[1])
            continue
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
    with contextlib.redirect_stderr(io.StringIO()) as warned:
        found = machine.parse(machine.listing())
    if warned.getvalue():
        said = warned.getvalue().strip().removeprefix("warning: ")
        yield Check("driver", "wrong", said, "reload the NVIDIA driver; often a restart does")
        return
    if not found:
        yield Check("gpus", "ok", f"none; jobs train on {machine.cores()} CPU cores")
        return
    torch = importlib.metadata.version("torch")
    names = ", ".join(dict.fromkeys(gpu.name for gpu in found))
    yield Check("driver", "ok", f"{_driver()}, {len(found)} GPUs: {names}")
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    usable = machine.visible(found, shown)
    if torch.endswith("+cpu"):
        remedy = "rm -r .venv && UV_TORCH_BACKEND=auto make setup"
        yield Check("gpus", "wrong", f"torch {torch} is built for CPUs alone", remedy)
    elif not usable:
        said = f"CUDA_VISIBLE_DEVICES is {shown!r}, which shows none: jobs train on CPU cores"
        yield Check("gpus", "warning", said, "unset it, or name GPUs as nvidia-smi -L does")
    else:
        for gpu in usable:
            said = f"torch {torch} on {gpu.name} {gpu.id}"
            if (wrong := _refuses(gpu)) is None:
                yield Check("gpus", "ok", f"{said}: it computes")
            else:
                remedy = "update the driver, or take a PyTorch built for it: UV_TORCH_BACKEND=auto"
                yield Check("gpus", "wrong", f"{said}: {wrong}", remedy)


def _driver() -> str:
    """The driver's version, as it says itself."""
    path = Path("/proc/driver/nvidia/version")
    match = re.search(r"  (\d+[\d.]+) ", path.read_text()) if path.exists() else None
    return match[1] if match else "version unknown"


def _refuses(gpu: machine.Gpu) -> str | None:
    """What PyTorch says when it is to compute on a GPU; None where it does. In another process."""
    code = "import torch; assert torch.ones(8, device='cuda').sum().item() == 8.0"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": gpu.id}
    words = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {PATIENCE:.0f} seconds"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it died"])[-1]
