"""Data sets: each reader makes the same arrays, which `twf.data.store` keeps in one form."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twf import files
from twf.data import registry, store
from twf.data.extract import extracted
from twf.data.importing import check, import_file
from twf.errors import UserError

if TYPE_CHECKING:
    from twf.study import params


def prepare(name: str, dataset: params.Dataset, output: Path) -> None:
    """Read or draw the data set `name` of `params.yaml`, check it, and write it to `output`."""
    try:
        arrays = _read(dataset)
    except ModuleNotFoundError as error:
        raise UserError(
            f"the data set {name!r} needs {error.name}, which is not installed: "
            "pip install 'twf[report]'"
        ) from None
    _check_params(name, dataset, arrays)
    store.save(output, name, arrays)


def _read(dataset: params.Dataset) -> store.DataArrays:
    """Call the data set's reader; no other is imported, as scikit-learn and matplotlib are slow."""
    if dataset.reader == "digits":
        from twf.data import digits

        return digits.read(dataset)
    if dataset.reader == "archive":
        from twf.data import archive

        return archive.read(dataset)
    if dataset.reader == "letters":
        from twf.data import letters

        return letters.read(dataset)
    if dataset.reader == "textures":
        from twf.data import textures

        return textures.read(dataset)
    return _read_official(dataset)


def _read_official(dataset: params.OfficialData) -> store.DataArrays:
    """The arrays of an official archive, which `twf data fetch` has brought."""
    entry = registry.images_entry(dataset.archive)
    reader = import_module(f"twf.data.{entry.format.replace('-', '_')}")
    folder = files.archive_folder(dataset.archive)
    with extracted(*(folder / name for name in entry.files)) as content:
        arrays: store.DataArrays = reader.read(content, dataset.size)
    check(arrays, *entry.expected(dataset.size), folder)
    return arrays


def import_data(name: str, dataset: params.Dataset, path: Path) -> None:
    """Prepare the published data set `name` from a user's `.npz` or folder of class folders.

    The images must be those of the official archive. Raises `UserError`, and leaves what was there,
    where they are not.
    """
    if dataset.reader != "official":
        raise UserError(
            f"datasets.{name} is no published data set: `twf data prepare {name}` makes it"
        )
    counts, fingerprints, classes = registry.images_entry(dataset.archive).expected(dataset.size)
    import_file(
        name,
        path,
        files.data_file(name),
        classes=classes,
        size=dataset.size,
        counts=counts,
        fingerprints=fingerprints,
    )
    with files.atomic(files.receipt_file(dataset.archive)) as receipt:
        receipt.write_text(json.dumps({"imported": str(path)}, indent=2) + "\n")


def _check_params(name: str, dataset: params.Dataset, arrays: store.DataArrays) -> None:
    """Raise `UserError` where the arrays are not what `params.yaml` says of them."""
    if len(arrays.classes) != dataset.classes:
        raise UserError(
            f"datasets.{name}.classes is {dataset.classes}, but the data have "
            f"{len(arrays.classes)} classes: write {len(arrays.classes)}"
        )
    for split, images, labels in (
        ("train", arrays.train_images, arrays.train_labels),
        ("test", arrays.test_images, arrays.test_labels),
    ):
        shape = (len(labels), dataset.size, dataset.size, 3)
        if images.shape != shape or images.dtype != np.uint8:
            raise UserError(
                f"datasets.{name}.size is {dataset.size}, which asks for {split} images uint8 "
                f"{list(shape)}, but they are {images.dtype} {list(images.shape)}: change 'size' "
                "or the images"
            )
        absent = sorted(set(range(dataset.classes)) - set(np.unique(labels).tolist()))
        if absent:
            raise UserError(
                f"datasets.{name}: no {split} image of class {', '.join(map(str, absent))}; each "
                f"of the {dataset.classes} classes needs one"
            )
