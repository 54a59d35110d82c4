"""What the engines need of the process, of the folder, and of the jobs that they start."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

from twf.errors import UserError


def put_own_command_on_path() -> None:
    """Let `twf` mean the one beside this Python, also where its environment is not activated."""
    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]


def stop_with_parent() -> None:
    """Have this process sent SIGTERM when its parent ends, so that a run saves its state.

    Snakemake does not use what a job writes after Snakemake's own end.
    """
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of Linux's <sys/prctl.h>
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def refuse_copies_by_dvc() -> None:
    """Raise `UserError` in the copy of the folder that DVC makes for an experiment.

    It has results without Snakemake's notes on their parameters: old ones would pass for new.
    """
    if "/.dvc/tmp/exps/" in f"{Path.cwd().as_posix()}/":
        raise UserError(
            "in DVC's own copy of this folder old results would pass for new ones: leave --temp "
            "and --queue away, or clone the project and do `dvc exp run` in the clone"
        )


def refuse_braces() -> None:
    """Raise `UserError` in a folder whose name Snakemake would take for a pattern."""
    folder = str(Path.cwd())
    if set("{}") & set(folder):
        raise UserError(
            f"Snakemake takes the braces of {folder} for a name to fill in: rename that folder"
        )
