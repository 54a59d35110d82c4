"""Telling Weights & Biases of runs that are done, from their records, each once."""

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
from twf.tracking.client import MARK, Mode, WandbRun, folders, has_key, resolve
from twf.tracking.view import Row


@dataclass
class Synced:
    """What became of each run."""

    mode: Mode
    sent: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # they were there already, to their end
    failed: dict[str, str] = field(default_factory=dict)  # and why


def sync(settings: Tracking, study: str, records: list[Path], mode: str) -> Synced:
    """Tell of each record that is there, `auto`, `online` or `offline`.

    A run that Weights & Biases (online) or the folder `wandb/` (offline) has with this record's
    outcome is left alone. One that is there without it, because it was interrupted or has been done
    anew since, is told of again from its first row, in place of what was there. A run that fails
    does not stop the others.

    Raises `UserError` where there is no record, no wandb, or no key to go online with.
    """
    records = [path for path in records if path.exists()]
    if not records:
        raise UserError(f"no records of study {study}: `twf plan {study}` says how to make them")
    synced = Synced(resolve(mode))
    wandb = _wandb()
    has = _server(wandb, settings, study) if synced.mode == "online" else _has_folder
    with progress(f"sync {study}", len(records)) as advance:
        for path in records:
            try:
                (row,) = record.read(path).to_pylist()
                if has(row):
                    synced.skipped.append(path.stem)
                else:
                    _tell(WandbRun(settings, row, synced.mode), row)
                    synced.sent.append(path.stem)
            except Exception as error:  # of wandb or the network; the next may fare better
                synced.failed[path.stem] = str(error) or repr(error)
            advance(1, path.stem)
    return synced


def _tell(wandb_run: WandbRun, row: Row) -> None:
    try:
        wandb_run.finish(row)
    except BaseException:
        with contextlib.suppress(Exception):  # the first failure is the one to tell of
            wandb_run.abandon()
        raise


def _server(wandb: Any, settings: Tracking, study: str) -> Callable[[Row], bool]:
    """A function that asks Weights & Biases whether it has a record's run with its outcome."""
    if not has_key():
        raise UserError(
            "no key for Weights & Biases: `wandb login`, or set WANDB_API_KEY; --mode offline "
            "needs none"
        )
    try:
        api = wandb.Api()
    except Exception as error:
        raise UserError(
            f"Weights & Biases does not answer ({error}): see to the key and the network, or say "
            "--mode offline"
        ) from None
    place = [settings.entity, view.project(settings, study)]

    def has(row: Row) -> bool:
        path = "/".join(part for part in (*place, view.identity(row)) if part is not None)
        try:
            return view.is_told(api.run(path).summary, row)
        except (ValueError, wandb.errors.CommError) as error:  # by wandb's version
            if "Could not find run" in str(error):
                return False
            raise

    return has


def _has_folder(row: Row) -> bool:
    marks = [folder / MARK for folder in folders(view.identity(row))]
    return any(view.is_told(json.loads(mark.read_text()), row) for mark in marks if mark.exists())


def _wandb() -> Any:
    try:
        import wandb
    except ImportError:
        raise UserError(
            "wandb is not installed here: pip install wandb, in the environment of twf"
        ) from None
    return wandb
