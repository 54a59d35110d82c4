"""What the engines need of the process, of the folder, and of the jobs that they start."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from twf.errors import UserError

LOOKS = 0.2  # seconds from one look at whether the parent is there to the next

# Where tools write below the home: the variable that says it; else a folder of the tool's own in
# that of a second variable, or in one of the home. Snakemake, Weights & Biases, matplotlib.
HOME_FOLDERS = {
    "XDG_CACHE_HOME": ("snakemake", "", "~/.cache"),
    "WANDB_DATA_DIR": ("wandb", "XDG_DATA_HOME", "~/.local/share"),
    "MPLCONFIGDIR": ("matplotlib", "XDG_CONFIG_HOME", "~/.config"),
}
INSTEAD = Path(".snakemake/home")  # which git and DVC pass over


def put_own_command_on_path() -> None:
    """Let `twf` mean the one beside this Python, also where its environment is not activated."""
    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]


def replace_home() -> list[str]:
    """Have tools write to `INSTEAD` what they would write below a home that cannot be written.

    Snakemake would end in a traceback, Weights & Biases track nothing, and matplotlib look for all
    fonts in every process. A user that the system does not know, as in a container, gets a home and
    a name. For this process and those that it starts; returns the variables that are set so.
    """
    here = Path.cwd() / INSTEAD
    ours = {v: str(here / Path(default).name) for v, (*_, default) in HOME_FOLDERS.items()}
    ours |= {"HOME": str(here), "LOGNAME": f"user-{os.getuid()}"}
    if not os.path.isabs(os.path.expanduser("~")):
        os.environ["HOME"] = ours["HOME"]
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = ours["LOGNAME"]
    for variable, (tool, parent, default) in HOME_FOLDERS.items():
        top = os.environ.get(variable) or os.environ.get(parent) or default
        if not _can_be_written(Path(os.path.expanduser(top), tool)):
            os.environ[variable] = ours[variable]
    return [variable for variable, value in ours.items() if os.environ.get(variable) == value]


def _can_be_written(folder: Path) -> bool:
    """Whether files can be made in a folder, or in what it would be made in. Makes none to stay."""
    try:
        while not folder.exists():
            folder = folder.parent
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return file.write(b"0") == 1  # not where the disk or a quota is full
    except OSError:
        return False


def stop_with_parent() -> None:
    """Have this process sent SIGTERM when its parent ends, so that a run saves its state.

    Snakemake does not use what a job writes after Snakemake's own end.
    """
    parent, main = os.getppid(), threading.get_ident()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOKS)
        signal.pthread_kill(main, signal.SIGTERM)

    threading.Thread(target=look, daemon=True).start()


def pass_on_sigterm() -> None:
    """In a step of a Slurm job, pass SIGTERM on to this process's children.

    With control groups, Slurm sends it to the first process of a step alone. That is Snakemake,
    which waits for its commands and tells them nothing: they would be killed before they save their
    state. Snakemake's own handler stays as it is.
    """
    if "SLURM_STEP_ID" not in os.environ:
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)  # gets the number of each signal that has a handler

    def follow() -> None:
        while True:
            if signal.SIGTERM in os.read(reading, 64):
                for children in Path("/proc/self/task").glob("*/children"):
                    for child in children.read_text(encoding="utf-8").split():
                        os.kill(int(child), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def refuse_unfit_folder() -> None:
    """Raise `UserError` in a folder whose name Snakemake would take for a pattern."""
    if set("{}") & set(folder := str(Path.cwd())):
        raise UserError(
            f"Snakemake takes the braces of {folder} for a name to fill in: rename that folder"
        )


def refuse_links() -> None:
    """Raise `UserError` in a stage of DVC where a folder of outputs is a link to another place.

    DVC would make them and then end: it looks for git's `.gitignore` where they really lie.
    """
    if "DVC_STAGE" not in os.environ:
        return
    folders = [Path("data"), Path("checkpoints"), Path("archives"), *Path("results").glob("*")]
    here = Path.cwd().resolve()
    links = [folder for folder in folders if not folder.resolve().is_relative_to(here)]
    words = [sys.executable, "-m", "dvc", "config", "core.no_scm"]
    if links and b"true" not in subprocess.run(words, capture_output=True).stdout:
        raise UserError(
            f"{links[0]} is a link to another place, where DVC cannot ask git what is ignored: "
            "`dvc config --local core.no_scm true`, then the same command again. DVC keeps, pushes "
            "and pulls as before, but for `dvc exp` and `dvc metrics diff`"
        )
