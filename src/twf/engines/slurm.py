"""What jobs of a Slurm cluster need beyond their profile."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path


def pass_on_sigterm() -> None:
    """Pass SIGTERM on to this process's children, where it is a step of a Slurm job.

    Before it ends a job, Slurm sends SIGTERM: with control groups, to the first process of each
    step alone. That is Snakemake, which waits for its running commands and tells them nothing. They
    would be killed without having saved their state. Snakemake's own handler stays as it is.
    """
    if "SLURM_STEP_ID" not in os.environ:
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)  # gets the number of each signal that has a handler

    def follow() -> None:
        while True:
            if signal.SIGTERM in os.read(reading, 64):
                for child in _children():
                    os.kill(child, signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def _children() -> list[int]:
    """The processes that threads of this one started, and that still run."""
    return [
        int(word)
        for listed in Path("/proc/self/task").glob("*/children")
        for word in listed.read_text().split()
    ]
