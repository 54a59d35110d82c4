"""What jobs of a Slurm cluster need beyond their profile."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path


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
                    for child in children.read_text().split():
                        os.kill(int(child), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
