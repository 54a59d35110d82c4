"""Following a run in Weights & Biases while it trains. A failure here never ends the run.

What is shown is a function of the run's record, whole or so far: a `Row` has the columns of
`twf.results.record.SCHEMA`, of which the later ones are missing while the run trains.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any
from unittest.mock import patch

from twf.errors import note
from twf.learning.evaluation import metrics
from twf.results import record
from twf.study.methods import METHODS
from twf.study.params import PROTOCOLS, Tracking
from twf.tracking.mode import decided, folder

PATIENCE = 120.0  # seconds for W&B to start, and to send the last data; `wandb sync` sends the rest

Row = Mapping[str, Any]


class LiveTracker:
    """Reports a run to W&B's run until something fails; without one, to nobody.

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
        self._report(lambda run: self._send(run, row))
        self._report(lambda run: run.summary.update(summary(row)))
        self._report(lambda run: run.finish())

    def abandon(self) -> None:
        """End without an outcome."""
        self._report(lambda run: run.finish(exit_code=1))

    def _send(self, run: Any, row: Row) -> None:
        for values in rows(row)[self._sent :]:
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
    try:
        run = None if mode == "off" else _begin(mode, about(columns_before, settings))
    except Exception as error:  # no wandb, no network, no disk: the run goes on without it
        note(f"warning: tracking is off for this run: {error!r}")
    tracker = LiveTracker(run, columns_before)
    try:
        yield tracker
    except BaseException:
        tracker.abandon()
        raise


def _begin(mode: Any, described: dict[str, Any]) -> Any:
    """W&B's run for a run of ours."""
    import wandb

    folder().mkdir(parents=True, exist_ok=True)
    # W&B's own process takes these from the environment: without the mode it sends word of itself
    # offline too; `wandb.setup` never returns where the process does not start (W&B 0.31).
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
            **described,
        )
    run.define_metric("phase")
    for name in ("accuracy", *record.PROBED):
        run.define_metric(f"{name}/*", step_metric="phase")
    return run


def about(row: Row, settings: Tracking) -> dict[str, Any]:
    """What `wandb.init` takes to describe a run: a project per study, a group per cell.

    The identifier is the same for the same run with the same parameters, on every machine and at
    any time.
    """
    provenance = record.provenance(dict(row))
    columns = {name: row[name] for name in ("study", "digest", "device", "host")}
    started = {"started": row["started"].isoformat()}
    return {
        "project": f"{settings.project}-{row['study']}",
        "entity": settings.entity,
        "id": f"{row['study']}.{row['run']}.{row['digest'][:8]}",
        "name": row["run"],
        "group": row["run"].removesuffix(f".s{row['seed']}"),
        "config": provenance.pop("parameters") | columns | provenance | started,
    }


def rows(row: Row) -> list[dict[str, float]]:
    """The rows of the charts by step: each epoch's losses, then each phase's accuracies.

    While the run trains, they are the first ones of its record.
    """
    charted = []
    for phase, epochs in groupby(row["history"], key=lambda entry: int(entry["phase"])):
        for epoch in epochs:
            losses = {"total": epoch["loss"], **dict(epoch["terms"])}
            values = {f"loss/{name}": value for name, value in losses.items()}
            charted.append({"phase": phase, "epoch": epoch["epoch"], **values})
        if phase < len(row["accuracy_class_il"]):
            charted.append(_phase(row, phase))
    return charted


def _phase(row: Row, phase: int) -> dict[str, float]:
    values: dict[str, float] = {"phase": phase}
    for protocol in PROTOCOLS:
        accuracies = row[f"accuracy_{protocol.replace('-', '_')}"][phase]
        at_once = METHODS[row["method"]].at_once  # it has seen all tasks after its only phase
        seen = accuracies if at_once else accuracies[: phase + 1]
        values[f"accuracy/{protocol}/seen"] = sum(seen) / len(seen)
        values |= {f"accuracy/{protocol}/task-{i}": a for i, a in enumerate(accuracies)}
    for probe in record.PROBED:
        if row[probe]:  # whose first entry is from before training
            values |= {f"{probe}/{i}": value for i, value in enumerate(row[probe][phase + 1])}
    return values


def summary(row: Row) -> dict[str, float | str | None]:
    """The outcome of a record: final accuracy and forgetting, or why there are none."""
    outcome: dict[str, float | str | None] = {k: row[k] for k in ("status", "reason", "seconds")}
    for protocol in PROTOCOLS if row["status"] == "finished" else ():
        matrix = row[f"accuracy_{protocol.replace('-', '_')}"]
        outcome[f"faa/{protocol}"] = metrics.final_average_accuracy(matrix)
        outcome[f"ff/{protocol}"] = metrics.forgetting(matrix)
    return outcome
