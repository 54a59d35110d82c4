"""Images in folders, one per class: `train/CLASS/*` and `test/CLASS/*` (or `val/CLASS/*`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twf.data.images import read_images
from twf.data.store import DataArrays, Images, Labels
from twf.errors import UserError

TESTS = ("test", "val")  # what the folder of test images may be called


def read(path: Path, size: int) -> DataArrays:
    """All images, squashed to `size`, grey ones as RGB; labels are the ranks of the sorted names.

    Where `path` has one other folder alone, they are looked for there, as archives have it. Each
    file at any depth of a class's folder is an image, but those whose name starts with a dot.
    Raises `UserError` that names a folder which is missing, ambiguous or empty, or a broken image.
    """
    inner = [f for f in path.iterdir() if f.is_dir() and not f.name.startswith(".")]
    if len(inner) == 1 and inner[0].name != "train":
        path = inner[0]
    train = path / "train"
    tests = [path / name for name in TESTS if (path / name).is_dir()]
    if not train.is_dir() or not tests:
        raise UserError(
            f"{path} has no {'train' if not train.is_dir() else ' or '.join(TESTS)}/CLASS/*; put "
            "the training images in train/CLASS, the test images in test/CLASS"
        )
    if len(tests) > 1:
        raise UserError(f"{path} has both test/ and val/; leave there the one to test on")
    classes = _classes(train)
    if _classes(tests[0]) != classes:
        differing = set(classes).symmetric_difference(_classes(tests[0]))
        raise UserError(
            f"{train} and {tests[0]} have different classes, {min(differing)!r} is in one alone; "
            "each class needs a folder in both"
        )
    train_images, train_labels = _split(train, classes, size)
    test_images, test_labels = _split(tests[0], classes, size)
    return DataArrays(train_images, train_labels, test_images, test_labels, classes)


def _classes(folder: Path) -> list[str]:
    """The names of the folder's folders, sorted."""
    return sorted(f.name for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))


def _split(folder: Path, classes: list[str], size: int) -> tuple[Images, Labels]:
    """Images uint8 [N, size, size, 3] and labels int64 [N]."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        members = sorted(
            file
            for file in (folder / name).rglob("*")
            if file.is_file() and not file.name.startswith(".")
        )
        if not members:
            raise UserError(f"{folder / name} has no image; put some there, or delete the folder")
        files += members
        labels += [label] * len(members)
    images = read_images(files, size, "replace it by a good one, or delete it")
    return images, np.array(labels, dtype=np.int64)
