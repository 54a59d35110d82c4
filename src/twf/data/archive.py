"""A user's own arrays: a NumPy archive `.npz` with `x_train`, `y_train`, `x_test`, `y_test`.

`x_*` are images uint8 [N, H, W, 3]; `y_*` are labels [N], integers from 0. An optional
`class_names` gives the text for each label; without it the labels are their own names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twf.data.checks import BrokenFileError, as_images, as_labels, reading
from twf.data.store import DataArrays, Split
from twf.errors import UserError, few

KEYS = ("x_train", "y_train", "x_test", "y_test")


def read_npz(file: Path, classes: int) -> DataArrays:
    """The archive's arrays, checked. Raises `UserError` that names file and key, and why."""
    try:
        arrays = _arrays(file)
        train, test = (_split(file, arrays, split, classes) for split in ("train", "test"))
        return DataArrays(train, test, _class_names(file, arrays.get("class_names"), classes))
    except BrokenFileError as error:
        raise UserError(
            f"{error}; needed is a NumPy archive with {', '.join(KEYS)}: images uint8 [N, H, W, "
            "3], labels from 0 (docs/add-a-data-set.md). Image files are imported as the folder "
            "that they are in"
        ) from None


def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of `KEYS`, and `class_names` where the file has it, not yet checked."""
    with reading(file, "plain arrays"), np.load(file, allow_pickle=False) as archive:  # noqa: TID251
        if missing := [key for key in KEYS if key not in archive]:
            problem = f"has no {', '.join(missing)}, but {few(list(archive)) or 'nothing'}"
            raise BrokenFileError(file, problem)
        arrays = {}
        for key in (*KEYS, *{"class_names"}.intersection(archive)):
            with reading(file, f"plain arrays, at {key}"):
                arrays[key] = archive[key]
    return arrays


def _split(file: Path, arrays: dict[str, NDArray[Any]], split: str, classes: int) -> Split:
    x, y = f"x_{split}", f"y_{split}"
    images = as_images(file, x, arrays[x], ("N", "H", "W", 3))
    return Split(images, as_labels(file, y, arrays[y], len(images), range(classes)))


def _class_names(file: Path, names: NDArray[Any] | None, classes: int) -> list[str]:
    if names is None:
        return [str(label) for label in range(classes)]
    if not isinstance(names, np.ndarray) or names.dtype.kind != "U" or names.shape != (classes,):
        raise BrokenFileError(file, f"has other class_names than text [{classes}]")
    return [str(name) for name in names]
