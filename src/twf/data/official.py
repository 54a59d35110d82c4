"""What the readers of the official archives share: how they check what they find."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twf.data.store import Images, Labels
from twf.errors import UserError


def fetch_again(name: str) -> str:
    """What to do where a file of the archive `name` is missing or damaged."""
    return f"fetch the archive again: `twf data fetch {name}`"


def broken(file: Path, problem: str, name: str) -> UserError:
    """An error that names the file, its problem and the remedy."""
    return UserError(f"{file} {problem}; {fetch_again(name)}")


def read_lines(file: Path, name: str) -> list[list[str]]:
    """The words of each line of a text file; empty lines are left out."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise broken(file, "is missing", name) from None
    except (OSError, UnicodeDecodeError) as error:
        raise broken(file, f"cannot be read ({error})", name) from None
    return [line.split() for line in lines if line.strip()]


def as_images(
    file: Path, key: str, array: object, shape: tuple[int | None, ...], name: str
) -> Images:
    """`array` itself, where it is uint8 of `shape`; none stands for any length."""
    if not isinstance(array, np.ndarray):
        raise broken(file, f"has no array {key}", name)
    fits = array.ndim == len(shape) and all(
        needed in (None, found) for needed, found in zip(shape, array.shape, strict=True)
    )
    if array.dtype != np.uint8 or not fits:
        needed = ", ".join("N" if length is None else str(length) for length in shape)
        found = f"{array.dtype} {list(array.shape)}"
        raise broken(file, f"has {key} as {found}, where uint8 [{needed}] is expected", name)
    return array


def as_labels(file: Path, key: str, values: object, count: int, known: range, name: str) -> Labels:
    """`values` as int64 [count], where they are as many integers, all of them among `known`."""
    if not isinstance(values, list | np.ndarray):
        raise broken(file, f"has no labels {key}", name)
    try:
        labels = np.asarray(values)
    except ValueError:  # lists of different lengths
        labels = np.empty(0)
    if labels.dtype.kind not in "iu" or labels.size != count:
        found = f"{labels.dtype} {list(labels.shape)}"
        raise broken(file, f"has {key} as {found}, where {count} integers are expected", name)
    outside = labels[(labels < known[0]) | (labels > known[-1])]
    if outside.size:
        allowed = f"{known[0]} to {known[-1]}"
        raise broken(file, f"has the label {outside.flat[0]} in {key}, beyond {allowed}", name)
    return labels.reshape(count).astype(np.int64)
