"""CUB-200-2011 from its folder of images (Caltech's `CUB_200_2011.tgz`)."""

from __future__ import annotations

from pathlib import Path

from twf.data.images import read_split
from twf.data.store import DataArrays


def read(folder: Path, size: int) -> DataArrays:
    """All images, squashed to a square, in the official split; label 0 is the class number 1."""
    root = folder / "CUB_200_2011"
    images, number = _table(root / "images.txt"), _table(root / "image_class_labels.txt")
    is_train = _table(root / "train_test_split.txt")
    train, test = (
        read_split(
            {
                root / "images" / file: int(number[image]) - 1
                for image, file in images.items()
                if is_train[image] == wanted
            },
            size,
        )
        for wanted in ("1", "0")
    )
    return DataArrays(train, test, list(_table(root / "classes.txt").values()))


def _table(file: Path) -> dict[str, str]:
    """A file of lines `IDENTIFIER VALUE`."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines)
