"""What the readers of the official archives share: how they check what they find."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twf.data.store import Images, Labels
from twf.errors import UserError


class BrokenFileError(UserError):
    """A file of a data set is missing or damaged; who called the reader adds the remedy."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"{file} {problem}")


def read_lines(file: Path) -> list[list[str]]:
    """The words of each line of a text file; empty lines are left out."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise BrokenFileError(file, "is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenFileError(file, f"cannot be read ({error})") from None
    return [line.split() for line in lines if line.strip()]


def as_images(file: Path, key: str, array: object, shape: tuple[int | None, ...]) -> Images:
    """`array` itself, where it is uint8 of `shape`; None stands for any length."""
    if not isinstance(array, np.ndarray):
        raise BrokenFileError(file, f"has no array {key}")
    fits = array.ndim == len(shape) and all(
        needed in (None, found) for needed, found in zip(shape, array.shape, strict=True)
    )
    if array.dtype != np.uint8 or not fits:
        needed = ", ".join("N" if length is None else str(length) for length in shape)
        found = f"{array.dtype} {list(array.shape)}"
        raise BrokenFileError(file, f"has {key} as {found}, expected uint8 [{needed}]")
    return array


def as_labels(file: Path, key: str, values: object, count: int, allowed: range) -> Labels:
    """`values` as int64 [count], where they are `count` integers in the range `allowed`."""
    if not isinstance(values, list | np.ndarray):
        raise BrokenFileError(file, f"has no labels {key}")
    try:
        labels = np.asarray(values)
    except ValueError:  # lists of different lengths
        labels = np.empty(0)
    if labels.dtype.kind not in "iu" or labels.size != count:
        found = f"{labels.dtype} {list(labels.shape)}"
        raise BrokenFileError(file, f"has {key} as {found}, expected {count} integers")
    outside = labels[(labels < allowed[0]) | (labels > allowed[-1])]
    if outside.size:
        problem = f"has the label {outside.flat[0]} in {key}, outside {allowed[0]} to {allowed[-1]}"
        raise BrokenFileError(file, problem)
    return labels.reshape(count).astype(np.int64)
