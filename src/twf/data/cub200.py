"""CUB-200-2011 from its folder of images (Caltech's `CUB_200_2011.tgz`)."""

from __future__ import annotations

from pathlib import Path

from twf.data.checks import BrokenFileError, read_lines
from twf.data.images import read_split
from twf.data.store import DataArrays, Split


def read(folder: Path, size: int) -> DataArrays:
    """All images, squashed to a square, in the official split; label 0 is the class number 1.

    Raises `BrokenFileError`, also for an image without class or split.
    """
    root = folder / "CUB_200_2011"
    names = _table(root / "classes.txt")
    if list(names) != [str(number) for number in range(1, len(names) + 1)]:
        raise BrokenFileError(root / "classes.txt", "does not number its classes from 1")
    files = _table(root / "images.txt")
    label_of = {number: label for label, number in enumerate(names)}
    labels = _of_each(files, root / "image_class_labels.txt", label_of)
    is_train = _of_each(files, root / "train_test_split.txt", {"0": 0, "1": 1})

    def split(wanted: int) -> Split:
        members = (image for image in files if is_train[image] == wanted)
        return read_split({root / "images" / files[i]: labels[i] for i in members}, size)

    return DataArrays(split(1), split(0), list(names.values()))


def _table(file: Path) -> dict[str, str]:
    """A file of lines `IDENTIFIER VALUE`."""
    table: dict[str, str] = {}
    for words in read_lines(file):
        if len(words) != 2 or words[0] in table:
            raise BrokenFileError(file, f"has a wrong or repeated line: {' '.join(words)!r}")
        table[words[0]] = words[1]
    return table


def _of_each(files: dict[str, str], table: Path, meaning: dict[str, int]) -> dict[str, int]:
    """The `meaning` of each image's value in `table`, by the image's identifier."""
    values = _table(table)
    for identifier, file in files.items():
        if values.get(identifier) not in meaning:
            value = values.get(identifier, "nothing")
            raise BrokenFileError(table, f"has {value} for image {identifier} ({file})")
    if unknown := values.keys() - files.keys():
        raise BrokenFileError(table, f"has image {min(unknown)}, which images.txt lacks")
    return {identifier: meaning[value] for identifier, value in values.items()}
