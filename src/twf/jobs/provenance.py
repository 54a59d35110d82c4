"""Where a result comes from: code, versions, device."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twf
from twf.gpus import cpu
from twf.jobs.code import code_hash

# what can change a number, in a checkout: code, parameters, and the packages it runs with
DECIDE = ("src", "params.yaml", "pyproject.toml", "constraints.txt", "environment.yml")


def device_and_versions(device: torch.device) -> dict[str, Any]:
    """The device's name, which GPU it is, and the versions of what computes."""
    cuda = device.type == "cuda"
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "cudnn": str(torch.backends.cudnn.version()) if cuda else None,
    }
    return {
        "device": device_name(device),
        # `twf.gpus.devices` lets a job see one, by CUDA's identifier
        "gpu": os.environ.get("CUDA_VISIBLE_DEVICES") if cuda else None,
        "versions": {k: v for k, v in versions.items() if v},
    }


def device_name(device: torch.device) -> str:
    """The GPU's name, or the CPU's with the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu.cpu_name(torch.get_num_threads())


def code_origin(*roots: str) -> dict[str, str | None]:
    """The package's version, the git commit it was run from, and the hash of what `roots` use."""
    return {"version": twf.__version__, "commit": commit(), "method_hash": code_hash(*roots)}


def commit() -> str | None:
    """The commit of the checkout this code lies in, with `+` where what decides differs from it.

    None for code that no commit has: installed from a wheel, or where there is no git.
    """

    def git(folder: str | Path, *words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    package = Path(twf.__file__).parent
    try:
        # a wheel may lie in a folder that the git of another project ignores
        git(package, "ls-files", "--error-unmatch", "__init__.py")
        top = git(package, "rev-parse", "--show-toplevel")
        changed = git(top, "status", "--porcelain", "--", *DECIDE)
        return git(top, "rev-parse", "HEAD") + ("+" if changed else "")
    except (subprocess.CalledProcessError, FileNotFoundError):
        return None  # the version and the hash remain
