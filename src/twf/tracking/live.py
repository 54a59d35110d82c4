"""Following a run while it goes on. A failure here is a warning, and never ends the run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, get_args

from twf.errors import UserError
from twf.study.params import Tracking
from twf.tracking.client import WandbRun, resolve
from twf.tracking.view import Row

MODES = get_args(Tracking.model_fields["mode"].annotation)
SWITCH = "TWF_TRACKING"  # an environment variable, over `tracking.mode` in params.yaml


class Tracker(Protocol):
    """Whom a run tells of itself."""

    def update(self, outcome: Row) -> None:
        """What the run has found so far, by the record's columns."""

    def finish(self, row: Row) -> None:
        """The run's record."""


class NoTracker:
    """Tracking is off, or could not start."""

    def update(self, outcome: Row) -> None:
        pass

    def finish(self, row: Row) -> None:
        pass

    def abandon(self) -> None:
        pass


class WandbTracker:
    """Tells Weights & Biases; its first failure ends the telling, never the run."""

    def __init__(self, wandb_run: WandbRun, about: Row) -> None:
        self._run = wandb_run
        self._about = about
        self._alive = True

    def _tell(self, action: Callable[[], object]) -> None:
        if self._alive:
            try:
                action()
            except Exception as error:  # whatever it is, the run matters more
                self._alive = False
                _warn(f"tracking stopped: {error}")

    def update(self, outcome: Row) -> None:
        self._tell(lambda: self._run.update({**self._about, **outcome}))

    def finish(self, row: Row) -> None:
        self._tell(lambda: self._run.finish(row))

    def abandon(self) -> None:
        """The run ends without an outcome."""
        self._tell(self._run.abandon)


@contextlib.contextmanager
def start_tracking(settings: Tracking, about: Row) -> Iterator[Tracker]:
    """A tracker for one run, by `tracking.mode` or the environment variable `TWF_TRACKING`.

    `about` has the columns of the run's record that are known before it starts.
    """
    mode = os.environ.get(SWITCH, settings.mode)
    if mode not in MODES:
        raise UserError(f"{SWITCH} is {mode!r}; allowed: {', '.join(MODES)}")
    if mode == "off":
        yield NoTracker()
        return
    tracker: NoTracker | WandbTracker = NoTracker()
    try:
        tracker = WandbTracker(WandbRun(settings, about, resolve(mode)), about)
    except Exception as error:  # no wandb, no network, no disk: the run goes on without it
        _warn(f"tracking is off for this run: {error}")
    try:
        yield tracker
    except BaseException:
        tracker.abandon()
        raise


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)
