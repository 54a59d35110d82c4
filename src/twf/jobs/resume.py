"""Saving a run while it goes on, so that the same command goes on where it was stopped or killed.

The saved state is no output of the pipeline: Snakemake deletes those of jobs that fail. It has a
guard of all that decides the result; a state of another guard is not used.
"""

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from twf.errors import UserError, note
from twf.files import locked
from twf.jobs import checkpoints
from twf.jobs.checkpoints import Checkpoint
from twf.learning.state import Tensors, flatten
from twf.learning.step import CaptureError

STOPPING = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


class Stopped(BaseException):
    """A signal told the run to stop: the message says whether its state is saved.

    No `Exception`, which tracking would take for a failure of its own.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.status = 128 + number  # the process's, as a shell has it


class Keeper:
    """Saves a run's state every `every` seconds, when told, and when the process is to end."""

    def __init__(self, path: Path, guard: dict[str, Any], every: float) -> None:
        self.path = path
        self.guard = guard
        self.every = every
        self.stopping = 0  # the signal that told to stop
        self.between = True  # no step was done since the state was saved, or there was none yet
        self.kept = False  # there is a state to go on from
        self.after_step: Callable[[], None] = lambda: None  # called at each pause
        self.spent = 0.0  # seconds that the run took before it was resumed
        self._started = self._saved = time.monotonic()

    @property
    def seconds(self) -> float:
        """What the run has taken so far, before it was resumed too."""
        return self.spent + time.monotonic() - self._started

    def load(self) -> tuple[Any, Tensors] | None:
        """What was saved last, as `flatten` gave it; None if there is no usable state."""
        if not self.path.exists():
            return None
        try:
            saved = checkpoints.read(self.path, "starting over")
        except UserError as error:
            note(str(error))
            return None
        guard = saved.about.get("guard", {})
        if other := [key for key, value in self.guard.items() if guard.get(key) != value]:
            note(f"{self.path} was made with other {', '.join(other)}; starting over")
            return None
        self.spent, self.kept = saved.about["seconds"], True
        return saved.about["state"], saved.tensors

    def pause(self, state: Callable[[], Any], now: bool = False) -> None:
        """Between two steps: save `state()` where it is time, and raise `Stopped` if told to."""
        self.between, ending = False, " and saved: the same command goes on from here"
        self.after_step()
        if self.stopping or now or time.monotonic() - self._saved >= self.every:
            try:
                self.save(state())
                self.between = now
            except UserError as error:  # the run matters more; what was saved before is there
                ending = f", but not saved ({error}): the command goes on from an earlier state"
                note(f"warning: not saved: {error}")
        if self.stopping:
            raise Stopped(f"stopped{ending}", self.stopping)

    def save(self, state: Any) -> None:
        """Write the state. Raises `UserError` where that fails."""
        tensors: Tensors = {}
        about = {"guard": self.guard, "seconds": self.seconds, "state": flatten(state, tensors)}
        self._saved = time.monotonic()
        checkpoints.write(self.path, Checkpoint(tensors, about))
        self.kept = True

    def done(self) -> None:
        """The run is recorded: its state is not needed any more, and no signal stops it.

        A job that is done and killed on its way out has failed: Snakemake deletes what it made.
        """
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(self.path.parent, ignore_errors=True)


@contextlib.contextmanager
def keeping(path: Path, guard: dict[str, Any], every: float) -> Iterator[Keeper]:
    """A keeper for one run, whose state is saved at `path`; `STOPPING` tell it to stop.

    But those that the process ignores, as one of `nohup` does. Once the run is recorded, its
    process is to end, and ignores them all.

    Between tasks there is nothing new to save, and what a method does there, and an evaluation,
    take long: it then stops at once. Raises `UserError` where another process is at this run.
    """
    with locked(path.parent.with_name(f"{path.parent.name}.lock"), "this run"):
        keeper = Keeper(path, guard, every)

        def stop(number: int, _: Any) -> None:
            keeper.stopping = number
            if keeper.between:
                goes_on = "goes on from its saved state" if keeper.kept else "begins again"
                raise Stopped(f"stopped before the next step: the same command {goes_on}", number)

        heard = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, stop) for number in heard}
        try:
            yield keeper
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"{error}: fewer `gpu_slots` in params.yaml, or smaller batches, need less memory"
            ) from None
        except CaptureError as error:
            raise UserError(
                f"a step cannot be captured ({error}): --execution plain trains without that"
            ) from error
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is stop:  # else the run is recorded
                    signal.signal(number, handler)
