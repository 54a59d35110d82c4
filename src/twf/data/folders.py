"""Images in folders, one per class: `train/CLASS/*` and `test/CLASS/*` (or `val/CLASS/*`)."""

from __future__ import annotations

from pathlib import Path

from twf.data.checks import BrokenFileError, is_hidden
from twf.data.images import read_classes
from twf.data.store import DataArrays
from twf.errors import few


def read(path: Path, size: int) -> DataArrays:
    """All images, squashed to `size`, grey ones as RGB; labels are the ranks of the sorted names.

    Where `path` has a single folder of another name, as archives often do, they are looked for
    there. Raises `BrokenFileError`, also for a folder that is missing or ambiguous.
    """
    splits = _folders(path)
    if len(splits) == 1 and splits[0] not in ("train", "test", "val"):
        path /= splits[0]
        splits = _folders(path)
    tests = [name for name in splits if name in ("test", "val")]
    if "train" not in splits or len(tests) != 1:
        raise BrokenFileError(
            path,
            f"needs train/CLASS/*, and either test/CLASS/* or val/CLASS/*; its folders are: "
            f"{few(splits) or 'none'}",
        )
    train, test = path / "train", path / tests[0]
    classes = _folders(train)
    if unequal := set(classes) ^ set(_folders(test)):
        problem = f"and {test} have not the same classes: {few(sorted(unequal))} in one only"
        raise BrokenFileError(train, problem)
    return DataArrays(
        read_classes([train / name for name in classes], size),
        read_classes([test / name for name in classes], size),
        classes,
    )


def _folders(path: Path) -> list[str]:
    inner = (folder.relative_to(path) for folder in path.iterdir() if folder.is_dir())
    return sorted(str(folder) for folder in inner if not is_hidden(folder))
