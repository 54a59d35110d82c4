"""Checks before a study's first job that its inputs are there, or can be made or fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twf import files
from twf.data import fetch, registry
from twf.errors import UserError

if TYPE_CHECKING:
    from twf.study import params


def data(name: str, dataset: params.Dataset) -> None:
    """Raise `UserError` where the data set is wrong, or is missing and cannot be made.

    Of a prepared file the header alone is read; of archives, the sizes.
    """
    path = files.data_file(name)
    if path.exists():
        _check_prepared(name, path, dataset)
    elif dataset.reader == "official":
        _check_archive(dataset.archive, f"twf data import {name} FILE")
    elif dataset.reader == "archive" and not Path(dataset.file).exists():
        raise UserError(
            f"datasets.{name}: no {dataset.file}; put it there, or change 'file' in params.yaml"
        )


def weights(name: str, source: params.Source) -> None:
    """Raise `UserError` where a source's published weights are missing and cannot be fetched."""
    if files.checkpoint_file(name).exists() or source.weights is None:
        return
    archive = registry.of_file(Path(source.weights))
    if archive is not None:
        _check_archive(archive, f"twf pretrain import {name} FILE")
    elif not Path(source.weights).exists():
        raise UserError(
            f"sources.{name}: no {source.weights}; put it there, or change 'weights' in params.yaml"
        )


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


def _check_prepared(name: str, path: Path, dataset: params.Dataset) -> None:
    found = header(path)
    metadata = found.get("__metadata__", {})
    remedy = f"delete it, and `twf data prepare {name}` makes it anew"
    try:
        classes = len(json.loads(metadata["classes"]))
        shape = found["train_images"]["shape"]
        fingerprints = {split: metadata[f"{split}_fingerprint"] for split in ("train", "test")}
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path} is no prepared data set, or is cut short; {remedy}") from None
    if classes != dataset.classes or shape[1] != dataset.size:
        raise UserError(
            f"{path} has {classes} classes of {shape[1]} pixels, params.yaml says "
            f"{dataset.classes} of {dataset.size}; {remedy}"
        )
    if dataset.reader != "official":
        return
    entry = registry.images_entry(dataset.archive)
    for split, expected in entry.fingerprints_at(dataset.size).items():
        if fingerprints[split] != expected:
            raise UserError(
                f"{path} is not {entry.title}: its {split} images have the fingerprint "
                f"{fingerprints[split]}, expected {expected}; {remedy}"
            )


def header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file; empty where it is none. No tensor is read."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            return {}
        try:
            header = json.loads(file.read(length))
        except ValueError:
            return {}
    return header if isinstance(header, dict) else {}
