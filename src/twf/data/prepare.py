"""Prepared data sets, from a reader or from a user's file, checked before they are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

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
        origin = {"imported": str(path), "prepared": str(output)}
        receipt.write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
    compared = " and ".join(entry.fingerprints_at(size)) or "none"
    print(
        f"{output}: {len(train.labels):,} training and {len(test.labels):,} test images of "
        f"{len(arrays.classes)} classes from {path}, as many as in {entry.title}; fingerprints "
        f"that are the official ones at {size} pixels: {compared}. Next: `twf plan STUDY`"
    )


def check(arrays: DataArrays, entry: registry.ImagesEntry, size: int, path: Path) -> None:
    """Raise `UserError` where `arrays`, read from `path`, are not the images of `entry`.

    Fingerprints are compared where the registry has them at this `size`.
    """
    if len(arrays.classes) != entry.classes:
        raise UserError(
            f"{path} has {len(arrays.classes)} classes, expected {entry.classes}: "
            f"{few(arrays.classes)}"
        )
    for name, expected in entry.images.model_dump().items():
        count = len(arrays.splits[name].labels)
        if count != expected:
            raise UserError(
                f"{path} has {count:,} {name} images, expected {expected:,}: bring the whole "
                "official split"
            )
    for name, expected in entry.fingerprints_at(size).items():
        fingerprint = arrays.splits[name].fingerprint
        if fingerprint != expected:
            raise UserError(
                f"the {name} images of {path} have the fingerprint {fingerprint}, expected "
                f"{expected}: bring RGB pixels as they are in the archive, never saved as JPEG nor "
                "resized otherwise, with labels in the official class order (docs/data.md)"
            )


def _read(dataset: params.Dataset) -> DataArrays:
    """Call the data set's reader."""
    if dataset.reader == "archive":
        return archive.read_npz(Path(dataset.file), dataset.classes)
    if dataset.reader == "official":
        return _read_official(dataset)
    return _reader(dataset.reader)(dataset)


def _reader(name: str) -> Callable[..., DataArrays]:
    """The function `read` of a module; no other is imported, as what they import is slow."""
    return import_module(f"twf.data.{name.replace('-', '_')}").read


def _read_official(dataset: params.OfficialData) -> DataArrays:
    """The images of an official archive, which `twf data fetch` has brought."""
    name, entry = dataset.archive, registry.images_entry(dataset.archive)
    with extracted(name, fetch.verified(name, entry)) as content:
        try:
            arrays = _reader(entry.format)(content, dataset.size)
        except BrokenFileError as error:
            # what was unpacked is gone, but for its name in the archive
            problem = str(error).replace(f"{content}/", "").replace(str(content), "its content")
            raise UserError(
                f"{', '.join(entry.files)} in {files.archive_folder(name)}: {problem}; mend the "
                f"archive, or the 'format' of {name} in the registry"
            ) from None
    check(arrays, entry, dataset.size, files.archive_folder(name))
    return arrays


def _check_params(name: str, dataset: params.Dataset, arrays: DataArrays) -> None:
    """Raise `UserError` where `arrays` differ from the data set's entry in `params.yaml`."""
    if len(arrays.classes) != dataset.classes:
        raise UserError(
            f"datasets.{name}.classes is {dataset.classes}, but the data have "
            f"{len(arrays.classes)} classes: write {len(arrays.classes)}"
        )
    for split, data in arrays.splits.items():
        height, width = data.images.shape[1:3]
        if (height, width) != (dataset.size, dataset.size):
            raise UserError(
                f"datasets.{name}.size is {dataset.size}, but {split} images have {height} x "
                f"{width} pixels: change 'size' or the images"
            )
        absent = sorted(set(range(dataset.classes)) - set(data.labels.tolist()))
        if absent:
            raise UserError(
                f"datasets.{name}: no {split} image of class {', '.join(map(str, absent))}; each "
                f"of the {dataset.classes} classes needs one"
            )
