"""Where a result comes from: code, versions, device."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twf
from twf import machine

# The packages whose code decides a result; the others only read, write or show it.
DECISIVE = ("twf.data.augmentation", "twf.evaluation", "twf.methods", "twf.models", "twf.replay")


def environment(device: torch.device) -> dict[str, Any]:
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
        # `twf.devices` lets a job see one, by CUDA's identifier
        "gpu": os.environ.get("CUDA_VISIBLE_DEVICES") if cuda else None,
        "versions": {k: v for k, v in versions.items() if v},
    }


def device_name(device: torch.device) -> str:
    """The GPU's name, or the CPU's with the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return machine.cpu_name(torch.get_num_threads())


def code() -> dict[str, str | None]:
    """The package's version, the git commit it was run from, and a hash of the decisive modules.

    The hash is over the modules in use, so a change of another method leaves it as it is.
    """
    digest = hashlib.sha256()
    for name in sorted(sys.modules):
        if name.startswith((*DECISIVE, "twf.training")):
            digest.update(name.encode())
            digest.update(Path(str(sys.modules[name].__file__)).read_bytes())
    return {"version": twf.__version__, "commit": _commit(), "method_hash": digest.hexdigest()}


def _commit() -> str | None:
    """The commit of the checkout this code lies in, with `+` where files differ from it."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (subprocess.CalledProcessError, FileNotFoundError):
        return None  # installed from a wheel, or no git: the version and the hash remain


def host() -> str:
    """The machine's name."""
    return os.uname().nodename
