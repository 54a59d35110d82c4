"""Sending a run to Weights & Biases, live or from its record. Raises whatever goes wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from twf.files import atomic
from twf.study.params import PROTOCOLS, Tracking
from twf.tracking import view
from twf.tracking.view import Row

PATIENCE = 120.0  # seconds to wait for the last data to be sent; `wandb sync` can send the rest
SENT = "twf-summary.json"  # in the folder of a run that was sent to its end: its summary

Mode = Literal["online", "offline"]


def resolve(mode: str) -> Mode:
    """`auto` is online if there is a key."""
    if mode == "auto":
        return "online" if has_key() else "offline"
    return "online" if mode == "online" else "offline"


def has_key() -> bool:
    """Whether a key for Weights & Biases is in the environment or in netrc."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    netrc = Path(os.environ.get("NETRC", Path.home() / ".netrc"))
    try:
        return "wandb" in netrc.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # missing, or not readable for us
        return False


def folder() -> Path:
    """`wandb/`, which has a folder for each run."""
    return Path(os.environ.get("WANDB_DIR", "")) / "wandb"


def folders(identity: str) -> list[Path]:
    """The folders of a run in `wandb/`, one for each time that this machine has sent it."""
    return sorted(log.parent for log in folder().glob(f"*run-*/run-{identity}.wandb"))


class WandbRun:
    """A run of Weights & Biases, sent row by row.

    It is never resumed: it starts with row 0, which replaces what was under its identifier.
    """

    def __init__(self, settings: Tracking, row: Row, mode: Mode, stale: bool = False) -> None:
        import wandb

        folder().mkdir(parents=True, exist_ok=True)
        self._sent = 0  # rows
        self._run: Any = wandb.init(
            mode=mode,
            project=view.project(settings, row["study"]),
            entity=settings.entity,
            **view.about(row, stale),
            dir=folder().absolute().parent,
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,  # a remote's address can hold a key; the record has the commit
                x_disable_stats=True,
                finish_timeout=PATIENCE,
                finish_timeout_raises=True,
            ),
        )
        self._run.define_metric("phase")
        for name in ("accuracy", "cka", "nearest_neighbours"):
            self._run.define_metric(f"{name}/*", step_metric="phase")

    def update(self, row: Row) -> None:
        """Send the rows that are new."""
        for values in view.rows(row)[self._sent :]:
            self._log(values)

    def _log(self, values: dict[str, Any]) -> None:
        self._run.log(values, step=self._sent, commit=True)
        self._sent += 1

    def finish(self, row: Row) -> None:
        """Send the rest of a record, and its outcome."""
        import wandb

        self.update(row)
        if data := view.table(row):
            matrices: dict[str, Any] = {"matrix/table": wandb.Table(view.COLUMNS, data)}
            for protocol in PROTOCOLS:
                page = view.heat_map(view.accuracy(row, protocol))
                matrices[f"matrix/{protocol}"] = wandb.Html(page, inject=False)
            self._log(matrices)
        summary = view.summary(row)
        self._run.summary.update(summary)
        place = Path(self._run.dir).parent
        self._run.finish()
        with atomic(place / SENT) as partial:
            partial.write_text(json.dumps(summary), encoding="utf-8")

    def abandon(self) -> None:
        """End without an outcome."""
        self._run.finish(exit_code=1)
