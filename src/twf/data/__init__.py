"""Data sets: each reader makes the same arrays, which `twf.data.store` keeps in one form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twf.data import store
from twf.errors import UserError

if TYPE_CHECKING:
    from twf import params


def prepare(name: str, dataset: params.Dataset, output: Path) -> None:
    """Read or draw the data set `name` of `params.yaml`, check it, and write it to `output`."""
    try:
        arrays = _read(dataset)
    except ModuleNotFoundError as error:
        raise UserError(
            f"the data set {name!r} needs {error.name}, which is not installed: "
            "pip install 'twf[report]'"
        ) from None
    _check(name, dataset, arrays)
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
    from twf.data import textures

    return textures.read(dataset)


def _check(name: str, dataset: params.Dataset, arrays: store.DataArrays) -> None:
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
