"""Sending completed runs to Weights & Biases from their records, each once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twf.errors import UserError
from twf.progress import progress
from twf.results import record
from twf.study.params import Tracking
from twf.tracking import view
from twf.tracking.client import SENT, Mode, WandbRun, folders, has_key, resolve
from twf.tracking.view import Row


@dataclass
class Synced:
    """What became of each run."""

    mode: Mode
    sent: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # they were there already, to their end
    failed: dict[str, str] = field(default_factory=dict)  # and why


def sync(settings: Tracking, study: str, records: list[Path], mode: str) -> Synced:
    """Send each record that exists; `mode` is `auto`, `online` or `offline`.

    A run is skipped where Weights & Biases (online) or the folder `wandb/` (offline) has it with
    this record's outcome. Where it was interrupted, or has been done again since, it is sent from
    its first row and replaces what was there. A run that fails does not stop the others.

    Raises:
        UserError: if there is no record, no wandb, or no key to go online with.
    """
    records = [path for path in records if path.exists()]
    if not records:
        raise UserError(f"no records of study {study}: `twf plan {study}` says how to make them")
    try:
        import wandb
    except ImportError:
        raise UserError(
            "wandb is not installed here: pip install wandb, in the environment of twf"
        ) from None
    synced = Synced(resolve(mode))
    has = _on_server(wandb, settings, study) if synced.mode == "online" else _in_folder
    with progress(f"sync {study}", len(records)) as advance:
        for path in records:
            try:
                (row,) = record.read(path).to_pylist()
                if has(row):
                    synced.skipped.append(path.stem)
                else:
                    _send(WandbRun(settings, row, synced.mode), row)
                    synced.sent.append(path.stem)
            except Exception as error:  # of wandb or the network; the next may fare better
                synced.failed[path.stem] = str(error) or repr(error)
            advance(1, path.stem)
    return synced


def _send(wandb_run: WandbRun, row: Row) -> None:
    try:
        wandb_run.finish(row)
    except BaseException:
        with contextlib.suppress(Exception):  # the first failure is the one to report
            wandb_run.abandon()
        raise


def _on_server(wandb: Any, settings: Tracking, study: str) -> Callable[[Row], bool]:
    """A function that asks Weights & Biases whether it has a record's run with its outcome."""
    if not has_key():
        raise UserError(
            "no key for Weights & Biases: `wandb login`, set WANDB_API_KEY, or say --mode offline"
        )
    try:
        api = wandb.Api()
    except Exception as error:
        raise UserError(
            f"Weights & Biases does not answer ({error}): check the key and the network, or say "
            "--mode offline"
        ) from None
    place = [part for part in (settings.entity, view.project(settings, study)) if part is not None]

    def has(row: Row) -> bool:
        try:
            return view.matches(api.run("/".join([*place, view.identity(row)])).summary, row)
        except (ValueError, wandb.errors.CommError) as error:  # by wandb's version
            if "Could not find run" in str(error):
                return False
            raise

    return has


def _in_folder(row: Row) -> bool:
    summaries = [folder / SENT for folder in folders(view.identity(row))]
    return any(view.matches(json.loads(s.read_text()), row) for s in summaries if s.exists())
