"""What the readers share: how they open files of any content."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePath

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
    except Exception as error:
        problem = f"cannot be read as {kind} ({type(error).__name__}: {error})"
        raise BrokenFileError(file, problem) from None


def is_hidden(path: PurePath) -> bool:
    """True if any part of a path is hidden, or is the folder that a Mac adds to archives."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
