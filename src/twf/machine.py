"""What of the machine the pipeline needs to know before PyTorch is imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, get_args

# How a training step is executed: see `twf.training.step`.
Execution = Literal["plain", "compiled", "captured", "compiled-captured"]
EXECUTIONS: tuple[Execution, ...] = get_args(Execution)


def gpu_present() -> bool:
    """Whether an NVIDIA GPU is there and not hidden by `CUDA_VISIBLE_DEVICES`."""
    return Path("/dev/nvidia0").exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def put_own_command_on_path() -> None:
    """Let `twf` mean the one beside this Python, also where its environment is not activated."""
    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
