"""What Snakemake asks of the process, of the folder, and of the jobs that it starts."""

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
    """Have this process sent SIGTERM when the one that started it ends, however that ends.

    Snakemake does not take what a job makes that outlives it: it makes that anew. So a run saves
    its state instead, and the next job goes on from there.
    """
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of Linux's <sys/prctl.h>
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


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


def refuse_braces() -> None:
    """Raise `UserError` in a folder that Snakemake cannot work in: it would fill in braces."""
    folder = str(Path.cwd())
    if set("{}") & set(folder):
        raise UserError(
            f"Snakemake takes the braces of {folder} for a name to fill in: rename that folder"
        )
