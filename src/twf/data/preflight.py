"""Checks before a study's first job that its inputs are there, or can be made or fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from twf import files
from twf.data import fetch, inputs, registry
from twf.errors import UserError
from twf.study.methods import METHODS

if TYPE_CHECKING:
    from twf.study import Run, params
    from twf.study.params import Params


def data(name: str, dataset: params.Dataset) -> None:
    """Raise `UserError` where the data set is wrong, or is missing or stale and cannot be made.

    Of a prepared file the header alone is read; of archives, the sizes.
    """
    path = files.data_file(name)
    if path.exists():
        held = inputs.data(name, dataset)
        _check_prepared(name, path, dataset, bool(held.changes))
        if not held.changes:
            return
        if dataset.reader == "official" and (file := fetch.imported(dataset.archive)) is not None:
            raise UserError(
                f"{path} was imported from {file}, and is stale ({held.why}): `twf data import "
                f"{name} FILE` again, or delete it to have it made from the archive"
            )
    if dataset.reader == "official":
        _check_archive(dataset.archive, f"twf data import {name} FILE")
    elif dataset.reader == "archive" and not Path(dataset.file).exists():
        raise UserError(
            f"datasets.{name}: no {dataset.file}; put it there, or change 'file' in params.yaml"
        )


def needed_by(run: Run, name: str) -> str:
    """Which run needs the data set, and what for where its own benchmark has another one."""
    why = ""
    if name != run.data and METHODS[run.method].source_data:
        why = f": {METHODS[run.method].title} replays the source's images"
    elif name != run.data:
        why = (
            ": it is probed, which looks at the source's images; in a study whose experiments have "
            "no 'probes' it does without"
        )
    return f"Run {run.id} needs it{why}"


def network(params: Params, name: str) -> None:
    """Raise `UserError` where a source's network is missing or stale and cannot be made."""
    source, path = params.sources[name], files.checkpoint_file(name)
    held = inputs.network(params, name)
    if path.exists() and not held.changes:
        return
    if source.trained_on is not None:
        if inputs.is_imported(path):
            raise UserError(
                f"{path} was imported, and is stale ({held.why}): `twf pretrain import {name} "
                f"FILE` again, or delete it to have it trained"
            )
        data(source.trained_on, params.datasets[source.trained_on])
        return
    weights = Path(str(source.weights))
    archive = registry.of_file(weights)
    if archive is not None:
        _check_archive(archive, f"twf pretrain import {name} FILE")
    elif not weights.exists():
        raise UserError(
            f"sources.{name}: no {source.weights}; put it there, or change 'weights' in params.yaml"
        )
    inputs.require_named_weights(params, name)


def _check_archive(archive: str, alternative: str) -> None:
    entry = registry.entry(archive)
    if fetch.status(archive, entry) == "present":
        return
    problem = fetch.unreachable(archive, entry)
    if problem is not None:
        raise UserError(
            f"{problem}; or bring your own: `{alternative}`. `twf data fetch --study STUDY` "
            "fetches all that a study needs"
        )


def _check_prepared(name: str, path: Path, dataset: params.Dataset, stale: bool) -> None:
    found = inputs.header(path)
    metadata = found.get("__metadata__", {})
    remedy = f"delete it, and `twf data prepare {name}` makes it anew"
    try:
        json.loads(metadata["classes"]), found["train_images"]["shape"][1]
        fingerprints = {split: metadata[f"{split}_fingerprint"] for split in ("train", "test")}
    except (KeyError, TypeError, IndexError, ValueError):
        raise UserError(f"{path} is no prepared data set, or is cut short; {remedy}") from None
    if stale or dataset.reader != "official":
        return
    entry = registry.images_entry(dataset.archive)
    for split, expected in entry.fingerprints_at(dataset.size).items():
        if fingerprints[split] != expected:
            raise UserError(
                f"{path} is not {entry.title}: its {split} images have the fingerprint "
                f"{fingerprints[split]}, expected {expected}; {remedy}"
            )
