"""Following a run while it trains. A failure here is a warning, and never ends the run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Literal
from unittest.mock import patch

from twf.errors import note
from twf.results.record import PROBED
from twf.study.params import Tracking
from twf.tracking import view
from twf.tracking.mode import decided, folder
from twf.tracking.view import Row

PATIENCE = 120.0  # seconds for W&B to start, and to send the last data; `wandb sync` sends the rest


class LiveTracker:
    """Reports a run to Weights & Biases until something fails; without W&B's run, to nobody.

    A run is never resumed there: it starts with row 0, which replaces what was under its
    identifier.
    """

    def __init__(self, wandb_run: Any = None, columns_before: Row | None = None):
        self._run = wandb_run
        self._columns_before = columns_before or {}
        self._sent = 0  # rows

    def update(self, outcome: Row) -> None:
        """Report the outcome so far, by the record's columns."""
        self._report(lambda run: self._send(run, {**self._columns_before, **outcome}))

    def finish(self, row: Row) -> None:
        """Report the run's record."""

        def end(run: Any) -> None:
            self._send(run, row)
            run.summary.update(view.summary(row))
            run.finish()

        self._report(end)

    def abandon(self) -> None:
        """End without an outcome."""
        self._report(lambda run: run.finish(exit_code=1))

    def _send(self, run: Any, row: Row) -> None:
        for values in view.rows(row)[self._sent :]:
            run.log(values, step=self._sent, commit=True)
            self._sent += 1

    def _report(self, action: Callable[[Any], object]) -> None:
        try:
            if self._run is not None:
                action(self._run)
        except Exception as error:  # whatever it is, the run matters more
            self._run = None
            note(f"warning: tracking stopped: {error!r}")


@contextlib.contextmanager
def start_tracking(settings: Tracking, columns_before: Row) -> Iterator[LiveTracker]:
    """A tracker for one run, in the mode that is `decided`.

    `columns_before` are the columns of the run's record that are set before it trains. Raises
    `UserError` as `decided` does.
    """
    mode, _ = decided(settings)
    run = None
    if mode != "off":
        try:
            run = _begin(settings, columns_before, mode)
        except Exception as error:  # no wandb, no network, no disk: the run goes on without it
            note(f"warning: tracking is off for this run: {error!r}")
    tracker = LiveTracker(run, columns_before)
    try:
        yield tracker
    except BaseException:
        tracker.abandon()
        raise


def _begin(settings: Tracking, row: Row, mode: Literal["online", "offline"]) -> Any:
    """W&B's run for a run of ours."""
    import wandb

    folder().mkdir(parents=True, exist_ok=True)
    # W&B's own process takes these from the environment. Without the mode it sends word of itself
    # offline too. `wandb.setup` takes them as well, but never returns where the process does not
    # start (W&B 0.31).
    with patch.dict(os.environ, WANDB_MODE=mode, WANDB_X_SERVICE_WAIT=str(PATIENCE)):
        os.environ.pop("WANDB_SWEEP_ID", None)  # whose run's identifier would go before ours
        run = wandb.init(
            mode=mode,
            dir=folder().absolute().parent,
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,  # an address can hold a key; the record has the commit
                x_disable_stats=True,
                x_save_requirements=False,  # 0.3 s; constraints.txt of the commit says them
                finish_timeout=PATIENCE,
                finish_timeout_raises=True,
            ),
            **view.about(row, settings),
        )
    run.define_metric("phase")
    for name in ("accuracy", *PROBED):
        run.define_metric(f"{name}/*", step_metric="phase")
    return run
