"""Prepared data sets, from a reader or from a user's file, checked before they are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np

from twf import files
from twf.data import archive, fetch, registry, store
from twf.data.checks import BrokenFileError
from twf.data.extract import extracted
from twf.data.store import DataArrays, Split
from twf.errors import UserError, few
from twf.study import params, products


def prepare(name: str, dataset: params.Dataset, output: Path) -> None:
    """Read or draw the data set `name` of `params.yaml`, check it, and write it to `output`.

    One that was imported is left as it is, unless it does not fit `params.yaml`: a `UserError`.
    """
    if dataset.reader == "official" and output.exists():
        imported = fetch.imported(dataset.archive)
        if imported is not None:
            made = products.made_data(name) or {}
            if changes := products.changes(made, dataset.made_of):
                raise UserError(
                    f"{output} was imported from {imported}, and is not as planned "
                    f"({products.shortened(changes)}): `twf data import {name} FILE` again, or "
                    "delete it to have it made from the archive"
                )
            print(f"{output} was imported from {imported}: nothing to do")
            return
    made_of = products.data_plan(dataset, known={})
    try:
        arrays = _read(dataset)
    except ModuleNotFoundError as error:
        raise UserError(
            f"the data set {name!r} needs {error.name}, which is not installed: "
            "pip install 'twf[report]'"
        ) from None
    _check_params(name, dataset, arrays)
    store.save(output, name, arrays, made_of)


def import_data(name: str, dataset: params.Dataset, path: Path) -> None:
    """Prepare the published data set `name` from a user's `.npz` or folder of class folders.

    Images of another size are squashed to the data set's, and must then be those of the official
    archive. Raises `UserError`, and leaves what was there, where they are not. Prints what was
    read and checked.
    """
    if dataset.reader != "official":
        raise UserError(
            f"datasets.{name} is no published data set: `twf data prepare {name}` makes it"
        )
    from twf.data import folders
    from twf.data.images import resize_images

    size = dataset.size
    if path.is_dir():
        try:
            arrays = folders.read(path, size)
        except BrokenFileError as error:
            raise UserError(f"{error}; replace it by a good one, or delete it") from None
    else:
        arrays = archive.read_npz(path, dataset.classes)
    train, test = (Split(resize_images(s.images, size), s.labels) for s in arrays.splits.values())
    arrays = replace(arrays, train=train, test=test)
    entry, output = registry.images_entry(dataset.archive), files.data_file(name)
    check(arrays, entry, size, path)
    store.save(output, name, arrays, dataset.made_of)
    with files.atomic(files.receipt_file(dataset.archive)) as receipt:
        found = {"imported": str(path), "prepared": str(output)}
        receipt.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    compared = " and ".join(entry.fingerprints_at(size)) or "none"
    print(
        f"read {path}: {len(train.labels):,} training and {len(test.labels):,} test images of "
        f"{len(arrays.classes)} classes, {size} x {size} pixels\n"
        f"as in the official archive ({entry.title}): the numbers of classes and images, and all "
        f"fingerprints known at {size} pixels: {compared}\n"
        f"written to {output}; next: `twf plan STUDY` says what else a study needs"
    )


def check(arrays: DataArrays, entry: registry.ImagesEntry, size: int, path: Path) -> None:
    """Raise `UserError` where `arrays`, read from `path`, are not the images of `entry`.

    Fingerprints are compared where the registry has them at this `size`. The error says what was
    expected, what was found, and the likely cause.
    """
    if len(arrays.classes) != entry.classes:
        raise UserError(
            f"{path} has {len(arrays.classes)} classes, expected {entry.classes}: "
            f"{few(arrays.classes)}{_unusual(arrays.train, arrays.classes)}"
        )
    counts = entry.images.model_dump()
    found = {name: len(split.labels) for name, split in arrays.splits.items()}
    for name, count in counts.items():
        if found[name] != count:
            raise UserError(
                f"{path} has {found[name]:,} {name} images, expected {count:,}; "
                f"{_cause_of_counts(found, counts)}{_unusual(arrays.splits[name], arrays.classes)}"
            )
    for name, expected in entry.fingerprints_at(size).items():
        split = arrays.splits[name]
        if split.fingerprint != expected:
            raise UserError(
                f"the {name} images of {path} have the fingerprint {split.fingerprint}, expected "
                f"{expected}; {_cause_of_content(split, expected)}"
            )


def _read(dataset: params.Dataset) -> DataArrays:
    """Call the data set's reader."""
    match dataset.reader:
        case "archive":
            return archive.read_npz(Path(dataset.file), dataset.classes)
        case "official":
            return _read_official(dataset)
        case drawn:
            return _reader(drawn)(dataset)


def _reader(name: str) -> Callable[..., DataArrays]:
    """The function `read` of a module; no other is imported, as what they import is slow."""
    return import_module(f"twf.data.{name.replace('-', '_')}").read


def _read_official(dataset: params.OfficialData) -> DataArrays:
    """The images of an official archive, which `twf data fetch` has brought."""
    entry = registry.images_entry(dataset.archive)
    folder = files.archive_folder(dataset.archive)
    with extracted(*(folder / name for name in entry.files)) as content:
        try:
            arrays = _reader(entry.format)(content, dataset.size)
        except BrokenFileError as error:
            # what was unpacked is gone: it is named by where it came from
            only = len(entry.files) == 1
            place = str(folder.joinpath(*entry.files)) if only else str(folder)
            said = str(error).replace(f"{content}/", f"{place}{': ' if only else '/'}")
            said = said.replace(str(content), place)
            remedy = (
                f"`twf data fetch {dataset.archive}` says whether the archive is the official one"
            )
            raise UserError(f"{said}; {remedy}") from None
    check(arrays, entry, dataset.size, folder)
    return arrays


def _check_params(name: str, dataset: params.Dataset, arrays: DataArrays) -> None:
    """Raise `UserError` where `arrays` differ from the data set's entry in `params.yaml`."""
    if len(arrays.classes) != dataset.classes:
        raise UserError(
            f"datasets.{name}.classes is {dataset.classes}, but the data have "
            f"{len(arrays.classes)} classes: write {len(arrays.classes)}"
        )
    for split, data in arrays.splits.items():
        images, labels = data.images, data.labels
        shape = (len(labels), dataset.size, dataset.size, 3)
        if images.shape != shape or images.dtype != np.uint8:
            raise UserError(
                f"datasets.{name}.size is {dataset.size}, so {split} images must be uint8 "
                f"{list(shape)}, but they are {images.dtype} {list(images.shape)}: change 'size' "
                "or the images"
            )
        absent = sorted(set(range(dataset.classes)) - set(np.unique(labels).tolist()))
        if absent:
            raise UserError(
                f"datasets.{name}: no {split} image of class {', '.join(map(str, absent))}; each "
                f"of the {dataset.classes} classes needs one"
            )


def _unusual(split: Split, classes: list[str]) -> str:
    """Which classes have more or fewer images than most, where most have equally many."""
    counts = np.bincount(split.labels, minlength=len(classes)).tolist()
    usual = max(counts, key=counts.count)
    unusual = [
        f"{name} {count}" for name, count in zip(classes, counts, strict=True) if count != usual
    ]
    if not 0 < len(unusual) < len(classes) / 2:
        return ""
    return f". Most classes have {usual} of them, but {few(unusual)}"


def _cause_of_counts(found: dict[str, int], counts: dict[str, int]) -> str:
    if found["train"] == counts["test"] and found["test"] == counts["train"]:
        return "training and test images are exchanged"
    if sum(found.values()) == sum(counts.values()):
        return "the split is not the official one"
    if any(found[split] < counts[split] for split in counts):
        return "images are missing, or some were held out: bring the whole official split"
    return "it holds images that the official archive does not have, or some twice"


def _cause_of_content(split: Split, expected: str) -> str:
    """The likely cause of another fingerprint: the usual mistakes are tried."""
    if Split(split.images[..., ::-1], split.labels).fingerprint == expected:
        return "its channels are blue-green-red: reverse them, images[..., ::-1]"
    if Split(split.images.swapaxes(1, 2), split.labels).fingerprint == expected:
        return "its rows and columns are exchanged: images.swapaxes(1, 2)"
    return (
        "its classes are in another order, or its images were resized by another filter or saved "
        "with loss (as JPEG)"
    )
