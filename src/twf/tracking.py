"""Weights & Biases, as a view of a run. The Parquet record is the truth; this may fail."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, get_args

from twf.errors import UserError
from twf.evaluation.metrics import Matrix, final_average_accuracy, forgetting
from twf.params import Tracking
from twf.study import Run

MODES = get_args(Tracking.model_fields["mode"].annotation)
SWITCH = "TWF_TRACKING"  # an environment variable, over `tracking.mode` in params.yaml


class Tracker(Protocol):
    """What the training loop tells of a run."""

    def epoch(self, entry: dict[str, Any]) -> None:
        """An epoch's losses: an entry of the record's `history`."""

    def task(self, task: int, class_il: list[float], task_il: list[float]) -> None:
        """Each task's accuracy after `task`."""

    def finish(self, status: str, class_il: Matrix, task_il: Matrix) -> None:
        """The run's outcome."""


class NoTracker:
    """Tracking is off, or could not start."""

    def epoch(self, entry: dict[str, Any]) -> None:
        pass

    def task(self, task: int, class_il: list[float], task_il: list[float]) -> None:
        pass

    def finish(self, status: str, class_il: Matrix, task_il: Matrix) -> None:
        pass

    def abandon(self) -> None:
        pass


class WandbTracker:
    """Tells Weights & Biases; its first failure ends the telling, never the run."""

    def __init__(self, wandb_run: Any, phases: int) -> None:
        self._run = wandb_run
        self._phases = phases
        self._alive = True

    def _tell(self, action: Callable[[], object]) -> None:
        if self._alive:
            try:
                action()
            except Exception as error:  # whatever it is, the run matters more
                self._alive = False
                _warn(f"tracking stopped: {error}")

    def epoch(self, entry: dict[str, Any]) -> None:
        values = {f"loss/{name}": value for name, value in entry["terms"].items()}
        values |= {"loss/total": entry["loss"], "phase": entry["phase"], "epoch": entry["epoch"]}
        self._tell(lambda: self._run.log(values))

    def task(self, task: int, class_il: list[float], task_il: list[float]) -> None:
        values: dict[str, float] = {"phase": task}
        for protocol, accuracies in (("class-il", class_il), ("task-il", task_il)):
            # Joint has seen all tasks after its only phase
            seen = accuracies if task == self._phases - 1 else accuracies[: task + 1]
            values[f"accuracy/{protocol}/seen"] = sum(seen) / len(seen)
            values |= {f"accuracy/{protocol}/task-{i}": a for i, a in enumerate(accuracies)}
        self._tell(lambda: self._run.log(values))

    def finish(self, status: str, class_il: Matrix, task_il: Matrix) -> None:
        summary: dict[str, float | str | None] = {"status": status}
        if status == "finished":
            for protocol, accuracy in (("class-il", class_il), ("task-il", task_il)):
                summary[f"faa/{protocol}"] = final_average_accuracy(accuracy)
                summary[f"ff/{protocol}"] = forgetting(accuracy)
        self._tell(lambda: self._run.summary.update(summary))
        self._tell(self._run.finish)

    def abandon(self) -> None:
        """The run ends without an outcome."""
        self._tell(lambda: self._run.finish(exit_code=1))


@contextlib.contextmanager
def start_tracking(settings: Tracking, run: Run) -> Iterator[Tracker]:
    """A tracker for one run, by `tracking.mode` or the environment variable `TWF_TRACKING`."""
    mode = os.environ.get(SWITCH, settings.mode)
    if mode not in MODES:
        raise UserError(f"{SWITCH} is {mode!r}; allowed: {', '.join(MODES)}")
    if mode == "auto":
        mode = "online" if _has_key() else "offline"
    if mode == "off":
        yield NoTracker()
        return
    tracker: NoTracker | WandbTracker = NoTracker()
    try:
        import wandb

        Path("wandb").mkdir(exist_ok=True)
        tracker = WandbTracker(
            wandb.init(
                mode=mode,  # type: ignore[arg-type]
                project=settings.project,
                entity=settings.entity,
                id=f"{run.study}.{run.id}.{run.digest[:8]}",
                name=run.id,
                group=run.id.removesuffix(f".s{run.seed}"),
                tags=[run.study, run.benchmark, run.method, f"from-{run.source}"],
                config=json.loads(run.parameters) | {"digest": run.digest},
                resume="allow" if mode == "online" else None,
                settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
            ),
            phases=run.phases,
        )
    except Exception as error:  # no wandb, no network, no disk: the run goes on without it
        _warn(f"tracking is off for this run: {error}")
    try:
        yield tracker
    except BaseException:
        tracker.abandon()
        raise


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    netrc = Path(os.environ.get("NETRC", Path.home() / ".netrc"))
    try:
        return "wandb" in netrc.read_text()
    except (OSError, UnicodeDecodeError):  # none there, or not for us to read
        return False


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)
