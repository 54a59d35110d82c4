"""Sending a run to Weights & Biases, live or from its record. Raises whatever goes wrong."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from twf.errors import UserError, lookup
from twf.files import atomic
from twf.results.record import PROBED
from twf.study.params import PROTOCOLS, Tracking
from twf.tracking import view
from twf.tracking.view import Row

# Seconds to wait for W&B to start, and to send the last data; `wandb sync` can send the rest.
PATIENCE = 120.0
SENT = "twf-summary.json"  # in the folder of a run that was sent to its end: its summary

Mode = Literal["online", "offline"]
OF_WANDB = {  # W&B's modes, old names among them, in our words
    **dict.fromkeys(("online", "run", "shared"), "online"),
    **dict.fromkeys(("offline", "dryrun"), "offline"),
    "disabled": "off",
}
TRUE = ("1", "ON", "TRUE", "YES")


def resolve(mode: str) -> Mode:
    """`auto` is what W&B itself is told; where that is nothing, online if there is a key.

    Raises `UserError` where it is told to do nothing.
    """
    said, where = of_wandb() if mode == "auto" else (None, "")
    if said == "off":
        raise UserError(f"{where} turns Weights & Biases off: unset it, or say --mode")
    if mode == "auto":
        mode = said or ("online" if has_key() else "offline")
    return "online" if mode == "online" else "offline"


def of_wandb() -> tuple[str | None, str]:
    """The mode that W&B's variable or one of its settings files names, in our words, and which.

    As its documentation has it: `WANDB_MODE`, then `wandb/settings` here, which `wandb offline`
    writes, then the user's own; before them `WANDB_DISABLED`, which Transformers' users set. None
    where they are silent. Raises `UserError` for another mode.
    """
    if os.environ.get("WANDB_DISABLED", "").upper() in TRUE:
        return "off", "WANDB_DISABLED"
    own = Path(os.environ.get("WANDB_CONFIG_DIR", Path.home() / ".config/wandb"))
    found = {"WANDB_MODE": os.environ.get("WANDB_MODE")}
    for file in (folder() / "settings", own / "settings"):
        settings = configparser.ConfigParser()
        with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
            settings.read(file, encoding="utf-8")
        found[str(file)] = settings.get("default", "mode", fallback=None)
    for where, mode in found.items():
        if mode:
            return lookup("mode of Weights & Biases", OF_WANDB, mode, where), where
    return None, ""


def reason(error: BaseException) -> str:
    """What an error says, or its kind where it says nothing, as one of a refused key does."""
    return str(error) or f"{type(error).__name__}, without a reason; is the key right?"


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
        # W&B's own process takes these from the environment. Without the mode it sends word of
        # itself offline too. `wandb.setup` takes them as well, but never returns where the process
        # does not start (W&B 0.31).
        of_process = {"WANDB_MODE": mode, "WANDB_X_SERVICE_WAIT": str(PATIENCE)}
        with patch.dict(os.environ, of_process):
            self._run: Any = wandb.init(
                mode=mode,
                project=view.project(settings, row["study"]),
                entity=settings.entity,
                **view.about(row, stale),
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
            )
        self._run.define_metric("phase")
        for name in ("accuracy", *PROBED):
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
