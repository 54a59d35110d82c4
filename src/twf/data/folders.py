"""Images in folders, one per class: `train/CLASS/*` and `test/CLASS/*` (or `val/CLASS/*`)."""

from __future__ import annotations

from pathlib import Path

from twf.data.images import read_classes
from twf.data.store import DataArrays
from twf.errors import UserError

TESTS = ("test", "val")  # what the folder of test images may be called


def read(path: Path, size: int) -> DataArrays:
    """All images, squashed to `size`, grey ones as RGB; labels are the ranks of the sorted names.

    Where `path` has a single folder of another name, as archives often do, they are looked for
    there. Raises `UserError` that names a folder which is missing or ambiguous, and what
    `read_classes` raises.
    """
    inner = _folders(path)
    if len(inner) == 1 and inner[0] != "train":
        path = path / inner[0]
    train = path / "train"
    tests = [path / name for name in TESTS if (path / name).is_dir()]
    if not train.is_dir() or not tests:
        raise UserError(
            f"{path} has no {'train' if not train.is_dir() else ' or '.join(TESTS)}/CLASS/*; put "
            "the training images in train/CLASS, the test images in test/CLASS"
        )
    if len(tests) > 1:
        raise UserError(f"{path} has both test/ and val/; leave there the one to test on")
    classes = _folders(train)
    if differing := set(classes).symmetric_difference(_folders(tests[0])):
        raise UserError(
            f"{train} and {tests[0]} have different classes: only one of them has "
            f"{min(differing)!r}; each class needs a folder in both"
        )
    return DataArrays(
        read_classes([train / name for name in classes], size),
        read_classes([tests[0] / name for name in classes], size),
        classes,
    )


def _folders(path: Path) -> list[str]:
    """The names of the folders in `path`, sorted."""
    return sorted(f.name for f in path.iterdir() if f.is_dir() and not f.name.startswith("."))
