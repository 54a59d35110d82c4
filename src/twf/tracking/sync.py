"""Sending completed runs to Weights & Biases from their records, each once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twf import files
from twf.errors import UserError
from twf.progress import progress
from twf.results import record
from twf.study import Run
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


def sync(settings: Tracking, study: str, runs: Collection[Run], mode: str) -> Synced:
    """Send the record of each run of a study that has one; `mode` is `auto`, `online` or `offline`.

    A run is skipped where Weights & Biases (online) or the folder `wandb/` (offline) has it with
    this record's outcome. Where it was interrupted, or has been done again since, it is sent from
    its first row and replaces what was there. A run that fails does not stop the others.

    What is sent with other parameters than the run has now is tagged `stale`; online also what was
    sent before. Which loses the tag if these are the run's parameters again.

    Raises:
        UserError: if there is no record, no wandb, or no key to go online with.
    """
    planned = {
        view.identity({"study": run.study, "run": run.id, "digest": run.digest}) for run in runs
    }
    records = [files.record_file(run.study, run.id) for run in runs]
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
    there = _on_server(wandb, settings, study) if synced.mode == "online" else {}
    try:
        _mark_stale(there.values(), planned)
    except Exception as error:
        synced.failed[f"the tag {view.STALE}"] = str(error) or repr(error)
    with progress(f"sync {study}", len(records)) as advance:
        for path in records:
            try:
                (row,) = record.read_run(path).to_pylist()
                if _has(there, row) if synced.mode == "online" else _in_folder(row):
                    synced.skipped.append(path.stem)
                else:
                    stale = view.identity(row) not in planned
                    _send(WandbRun(settings, row, synced.mode, stale), row)
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


def _on_server(wandb: Any, settings: Tracking, study: str) -> dict[str, Any]:
    """The runs that Weights & Biases has of a study, as `wandb.apis.public.Run`, by identifier."""
    if not has_key():
        raise UserError(
            "no key for Weights & Biases: `wandb login`, set WANDB_API_KEY, or say --mode offline"
        )
    place = [part for part in (settings.entity, view.project(settings, study)) if part is not None]
    try:
        return {run.id: run for run in wandb.Api().runs("/".join(place), lazy=False)}
    except Exception as error:
        if "Could not find project" in str(error):  # it comes with the first run
            return {}
        raise UserError(
            f"Weights & Biases does not answer ({error}): check the key and the network, or say "
            "--mode offline"
        ) from None


def _has(there: Mapping[str, Any], row: Row) -> bool:
    run = there.get(view.identity(row))
    return run is not None and view.matches(run.summary, row)


def _in_folder(row: Row) -> bool:
    summaries = [folder / SENT for folder in folders(view.identity(row))]
    return any(
        view.matches(json.loads(s.read_text(encoding="utf-8")), row)
        for s in summaries
        if s.exists()
    )


def _mark_stale(there: Iterable[Any], planned: Collection[str]) -> None:
    """Have those of the planned names that have other parameters tagged, and no other.

    This sends the summary again as it was read, so it comes before what replaces that.
    """
    names = {identity.rpartition(".")[0] for identity in planned}
    for run in there:
        stale = run.id not in planned
        if run.id.rpartition(".")[0] in names and stale != (view.STALE in run.tags):
            run.tags = sorted({*run.tags} ^ {view.STALE})
            run.update()
