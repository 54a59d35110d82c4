"""A user's own arrays: a NumPy archive `.npz` with `x_train`, `y_train`, `x_test`, `y_test`.

`x_*` are images uint8 [N, H, W, 3]; `y_*` are labels [N], integers from 0. An optional
`class_names` gives the text for each label; without it the labels are their own names.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twf.data.store import DataArrays, Split
from twf.errors import UserError
from twf.study.params import ArchiveData

KEYS = ("x_train", "y_train", "x_test", "y_test")

Array = NDArray[Any]


def read(dataset: ArchiveData) -> DataArrays:
    """The arrays of the archive that params.yaml names. Raises what `read_npz` raises."""
    return read_npz(Path(dataset.file), dataset.classes)


def read_npz(file: Path, classes: int) -> DataArrays:
    """The archive's arrays, checked. Raises `UserError` that names file, key, found and needed."""
    arrays = _open(file)
    train, test = (_split(file, arrays, split, classes) for split in ("train", "test"))
    return DataArrays(train, test, _class_names(file, arrays.get("class_names"), classes))


def _open(file: Path) -> dict[str, Array]:
    """The arrays of `KEYS`, and `class_names` where the file has it, not yet checked."""
    if not file.exists():
        raise UserError(
            f"no archive {file}: put a NumPy archive with {', '.join(KEYS)} there, or name "
            "another file"
        )
    make = "make it with numpy.savez(file, x_train=..., y_train=..., x_test=..., y_test=...)"
    if not zipfile.is_zipfile(file):
        raise UserError(f"{file} is not a NumPy archive, or is cut short; {make}")
    try:
        with np.load(file, allow_pickle=False) as archive:  # noqa: TID251
            missing = [key for key in KEYS if key not in archive]
            if missing:
                raise UserError(
                    f"{file}: no {', '.join(missing)}; needed: {', '.join(KEYS)}; "
                    f"found: {', '.join(archive) or 'nothing'}"
                )
            arrays = {}
            for key in (*KEYS, "class_names"):
                if key in archive:
                    arrays[key] = archive[key]
                    if not isinstance(arrays[key], np.ndarray):  # the bytes of another file
                        raise UserError(f"{file}: {key} is no array; {make}")
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{file} cannot be read as plain arrays ({error}); {make}") from None
    except MemoryError as error:  # of an array that is large, or whose header claims to be
        raise UserError(
            f"{file}: {key} does not fit into memory ({error}); if its shape is wrong, {make}; if "
            "it is right, use a machine with more memory"
        ) from None
    return arrays


def _split(file: Path, arrays: dict[str, Array], split: str, classes: int) -> Split:
    """The images of `train` or `test`."""
    images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise _wrong(file, f"x_{split}", images, "uint8 [N, H, W, 3]")
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise _wrong(file, f"y_{split}", labels, f"integers [{len(images)}], one for each image")
    outside = labels[(labels < 0) | (labels >= classes)]
    if outside.size:
        raise UserError(
            f"{file}: y_{split} has the label {outside[0]}; needed: 0 to {classes - 1}, for "
            f"{classes} classes"
        )
    return Split(images, labels.astype(np.int64))


def _class_names(file: Path, names: Array | None, classes: int) -> list[str]:
    """The text for each label."""
    if names is None:
        return [str(label) for label in range(classes)]
    if names.dtype.kind != "U" or names.shape != (classes,):
        raise _wrong(file, "class_names", names, f"text [{classes}], one for each class")
    return [str(name) for name in names]


def _wrong(file: Path, key: str, array: Array, needed: str) -> UserError:
    return UserError(f"{file}: {key} is {array.dtype} {list(array.shape)}; needed: {needed}")
