"""What the readers share: how they open files, and how they check what is in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePath

import numpy as np

from twf.data.store import Images, Labels
from twf.errors import UserError


class BrokenFileError(UserError):
    """A file of a data set is missing or damaged; who called the reader adds the remedy."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"{file} {problem}")


@contextlib.contextmanager
def reading(file: Path, kind: str) -> Iterator[None]:
    """Turn any other error that is raised while a file is read into a `BrokenFileError`."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise BrokenFileError(file, "is missing") from None
    except Exception as error:
        raise BrokenFileError(file, f"cannot be read as {kind} ({error})") from None


def is_hidden(path: PurePath) -> bool:
    """True if any part of a path is hidden, or is the folder that a Mac adds to archives."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


def read_lines(file: Path) -> list[list[str]]:
    """The words of each line of a text file; empty lines are left out."""
    with reading(file, "text"):
        lines = file.read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if line.strip()]


def as_images(file: Path, key: str, array: object, shape: tuple[int | str, ...]) -> Images:
    """`array` itself, where it is uint8 of `shape`, in which letters stand for any length."""
    if not isinstance(array, np.ndarray):
        raise BrokenFileError(file, f"has no array {key}")
    fits = len(shape) == array.ndim and all(
        isinstance(expected, str) or expected == length
        for expected, length in zip(shape, array.shape, strict=True)
    )
    if array.dtype != np.uint8 or not fits:
        problem = (
            f"{array.dtype} {list(array.shape)}, expected uint8 [{', '.join(map(str, shape))}]"
        )
        raise BrokenFileError(file, f"has {key} as {problem}")
    return array


def as_labels(file: Path, key: str, values: object, count: int, allowed: range) -> Labels:
    """`values` as int64 [count], where they are `count` integers in the range `allowed`."""
    with reading(file, f"integers, at {key}"):  # lists of different lengths
        labels = np.asarray([] if values is None else values)
    if labels.dtype.kind not in "iu" or labels.size != count:
        problem = f"{labels.dtype} {list(labels.shape)}, expected {count} integers"
        raise BrokenFileError(file, f"has {key} as {problem}")
    outside = labels[(labels < allowed[0]) | (labels > allowed[-1])]
    if outside.size:
        problem = f"has the label {outside.flat[0]} in {key}, outside {allowed[0]} to {allowed[-1]}"
        raise BrokenFileError(file, problem)
    return labels.reshape(count).astype(np.int64)
