"""What of the machine the pipeline needs to know before PyTorch is imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, get_args

# How a training step is executed: see `twf.training.step`.
Execution = Literal["plain", "compiled", "captured", "compiled-captured"]
EXECUTIONS: tuple[Execution, ...] = get_args(Execution)

from twf.errors import UserError


def gpu_present() -> bool:
    """Whether an NVIDIA GPU is there and not hidden by `CUDA_VISIBLE_DEVICES`."""
    return Path("/dev/nvidia0").exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def put_own_command_on_path() -> None:
    """Let `twf` mean the one beside this Python, also where its environment is not activated."""
    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]


def refuse_copies_by_dvc() -> None:
    """Raise `UserError` in the copy of the folder that DVC makes for an experiment.

    It has what the commit's runs made, without Snakemake's notes on how: with these parameters
    changed, it would pass for up to date.
    """
    if "/.dvc/tmp/exps/" in f"{Path.cwd().as_posix()}/":
        raise UserError(
            "in DVC's own copy of this folder old results would pass for new ones, as Snakemake "
            "has no notes on them there: leave --temp and --queue away, or clone the project and "
            "do `dvc exp run` in the clone"
        )
