"""CUB-200-2011 from its folder of images (Caltech's `CUB_200_2011.tgz`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twf.data.images import read_images
from twf.data.official import broken, fetch_again, read_lines
from twf.data.store import DataArrays, Images, Labels

NAME = "cub200"


def read(folder: Path, size: int) -> DataArrays:
    """All images, squashed to a square, in the official split; label 0 is the class number 1.

    Raises `UserError` that names a missing or damaged file, or an image without class or split.
    """
    root = folder / "CUB_200_2011"
    names = _table(root / "classes.txt")
    if list(names) != [str(number) for number in range(1, len(names) + 1)]:
        raise broken(root / "classes.txt", "does not count its classes from 1", NAME)
    files = _table(root / "images.txt")
    label_of = {number: label for label, number in enumerate(names)}
    labels = _of_each(files, root / "image_class_labels.txt", label_of)
    is_train = _of_each(files, root / "train_test_split.txt", {"0": 0, "1": 1})
    train_images, train_labels = _split(root, files, labels, is_train, 1, size)
    test_images, test_labels = _split(root, files, labels, is_train, 0, size)
    return DataArrays(train_images, train_labels, test_images, test_labels, list(names.values()))


def _table(file: Path) -> dict[str, str]:
    """A file of lines `IDENTIFIER VALUE`."""
    table: dict[str, str] = {}
    for words in read_lines(file, NAME):
        if len(words) != 2 or words[0] in table:
            raise broken(file, f"has a line that does not fit: {' '.join(words)!r}", NAME)
        table[words[0]] = words[1]
    return table


def _of_each(files: dict[str, str], table: Path, meaning: dict[str, int]) -> dict[str, int]:
    """What `table` says of each image, by the image's identifier."""
    values = _table(table)
    for identifier, file in files.items():
        if values.get(identifier) not in meaning:
            found = values.get(identifier, "nothing")
            raise broken(table, f"says {found} of image {identifier} ({file})", NAME)
    unknown = values.keys() - files.keys()
    if unknown:
        raise broken(table, f"speaks of image {min(unknown)}, which images.txt lacks", NAME)
    return {identifier: meaning[value] for identifier, value in values.items()}


def _split(
    root: Path,
    files: dict[str, str],
    labels: dict[str, int],
    is_train: dict[str, int],
    wanted: int,
    size: int,
) -> tuple[Images, Labels]:
    """Images uint8 [N, size, size, 3] and labels int64 [N] of one side of the split."""
    members = [identifier for identifier in files if is_train[identifier] == wanted]
    paths = [root / "images" / files[identifier] for identifier in members]
    images = read_images(paths, size, fetch_again(NAME))
    return images, np.array([labels[identifier] for identifier in members], dtype=np.int64)
