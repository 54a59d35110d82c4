"""A user's own arrays: a NumPy archive `.npz` with `x_train`, `y_train`, `x_test`, `y_test`.

`x_*` are images uint8 [N, H, W, 3]; `y_*` are labels [N], integers from 0. An optional
`class_names` gives the text for each label; without it the labels are their own names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twf.data.images import BrokenFileError, reading
from twf.data.store import DataArrays, Split
from twf.errors import UserError, few

KEYS = ("x_train", "y_train", "x_test", "y_test")


def read_npz(file: Path, classes: int) -> DataArrays:
    """The archive's arrays, checked. Raises `UserError` that names file and key, and why."""
    try:
        with reading(file, "plain arrays"), np.load(file, allow_pickle=False) as archive:  # noqa: TID251
            if missing := [key for key in KEYS if key not in archive]:
                problem = f"has no {', '.join(missing)}, but {few(list(archive)) or 'nothing'}"
                raise BrokenFileError(file, problem)
            train, test = (_split(file, archive, split, classes) for split in ("train", "test"))
            names = archive["class_names"] if "class_names" in archive else np.arange(classes)
            if names.shape != (classes,):
                raise BrokenFileError(file, f"has {names.size} class_names, expected {classes}")
            return DataArrays(train, test, [str(name) for name in names])
    except BrokenFileError as error:
        raise UserError(
            f"{error}; needed is a NumPy archive with {', '.join(KEYS)}: images uint8 [N, H, W, "
            "3], labels from 0 (docs/add-a-data-set.md). Image files are imported as the folder "
            "that they are in"
        ) from None


def _split(file: Path, archive: Any, split: str, classes: int) -> Split:
    images, labels = archive[f"x_{split}"], archive[f"y_{split}"]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise BrokenFileError(
            file, f"has x_{split} as {_kind(images)}, expected uint8 [N, H, W, 3]"
        )
    if labels.dtype.kind not in "iu" or labels.size != len(images):
        problem = f"has y_{split} as {_kind(labels)}, expected {len(images)} integers"
        raise BrokenFileError(file, problem)
    if outside := [label for label in np.unique(labels) if not 0 <= label < classes]:
        problem = f"has the label {outside[0]} in y_{split}, outside 0 to {classes - 1}"
        raise BrokenFileError(file, problem)
    return Split(images, labels.reshape(-1).astype(np.int64))


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"
