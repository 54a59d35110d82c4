"""What Snakemake needs of its process, and of the jobs that it starts."""

import os
import signal
import threading
import time


def stop_with_parent(parent: int) -> None:
    """Have this process sent SIGTERM when its parent has ended, so that a run saves its state."""
    main = threading.get_ident()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        signal.pthread_kill(main, signal.SIGTERM)

    threading.Thread(target=look, daemon=True).start()


def pass_on_sigterm() -> None:
    """In a step of a Slurm job, pass SIGTERM on to this process's children.

    Slurm may send it to a step's first process alone: Snakemake, which only waits for its commands.
    """
    if "SLURM_STEP_ID" not in os.environ:
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)  # gets the number of each signal that has a handler

    import psutil  # a node that only trains has none

    def follow() -> None:
        while signal.SIGTERM not in os.read(reading, 64):
            pass
        for child in psutil.Process().children():
            child.terminate()

    threading.Thread(target=follow, daemon=True).start()
