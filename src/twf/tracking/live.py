"""Following a run while it trains. A failure here is a warning, and never ends the run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import get_args

from twf.errors import UserError
from twf.study.params import Tracking
from twf.tracking.client import WandbRun, of_wandb, reason, resolve
from twf.tracking.view import Row

MODES = get_args(Tracking.model_fields["mode"].annotation)
SWITCH = "TWF_TRACKING"  # an environment variable that overrides `tracking.mode` of params.yaml


class LiveTracker:
    """Reports a run to Weights & Biases until something fails; without a `WandbRun`, to nobody."""

    def __init__(self, wandb_run: WandbRun | None = None, columns_before: Row | None = None):
        self._run = wandb_run
        self._columns_before = columns_before or {}

    def update(self, outcome: Row) -> None:
        """Report the outcome so far, by the record's columns."""
        self._report(lambda run: run.update({**self._columns_before, **outcome}))

    def finish(self, row: Row) -> None:
        """Report the run's record."""
        self._report(lambda run: run.finish(row))

    def abandon(self) -> None:
        """End without an outcome."""
        self._report(lambda run: run.abandon())

    def _report(self, action: Callable[[WandbRun], object]) -> None:
        try:
            if self._run is not None:
                action(self._run)
        except Exception as error:  # whatever it is, the run matters more
            self._run = None
            _warn(f"tracking stopped: {reason(error)}")


def decided(settings: Tracking) -> tuple[str, str]:
    """The mode of tracking, and what says so.

    `TWF_TRACKING` goes first, then what W&B itself is told, then `tracking.mode` of params.yaml.
    Raises `UserError` for a mode that there is not.
    """
    if (mode := os.environ.get(SWITCH)) is not None:
        if mode not in MODES:
            raise UserError(f"{SWITCH} is {mode!r}; allowed: {', '.join(MODES)}")
        return mode, SWITCH
    said, where = of_wandb()
    return (said, where) if said else (settings.mode, "tracking.mode of params.yaml")


@contextlib.contextmanager
def start_tracking(settings: Tracking, columns_before: Row) -> Iterator[LiveTracker]:
    """A tracker for one run, in the mode that is `decided`.

    `columns_before` are the columns of the run's record that are set before it trains.
    """
    mode, _ = decided(settings)
    run = None
    if mode != "off":
        try:
            run = WandbRun(settings, columns_before, resolve(mode))
        except Exception as error:  # no wandb, no network, no disk: the run goes on without it
            _warn(f"tracking is off for this run: {reason(error)}")
    tracker = LiveTracker(run, columns_before)
    try:
        yield tracker
    except BaseException:
        tracker.abandon()
        raise


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)
