"""Tiny ImageNet from its folder of JPEG files (CS231n's `tiny-imagenet-200.zip`)."""

from __future__ import annotations

from pathlib import Path

from twf.data.checks import BrokenFileError, is_hidden, read_lines
from twf.data.images import read_classes, read_split
from twf.data.store import DataArrays
from twf.errors import few


def read(folder: Path, size: int) -> DataArrays:
    """The training images, and the validation images as the test; the archive's test has no labels.

    Classes are the WordNet identifiers in sorted order, not in the order of `wnids.txt`. Raises
    `BrokenFileError`.
    """
    root = folder / "tiny-imagenet-200"
    listed = root / "wnids.txt"
    classes = sorted(words[0] for words in read_lines(listed))
    if len(set(classes)) != len(classes) or not classes:
        raise BrokenFileError(listed, "names a class twice, or none")
    train = read_classes([root / "train" / name / "images" for name in classes], size)
    return DataArrays(train, read_split(_validation(root / "val", classes), size), classes)


def _validation(folder: Path, classes: list[str]) -> dict[Path, int]:
    """The label of each file in `images/`, as `val_annotations.txt` has it."""
    annotations = folder / "val_annotations.txt"
    label_of = {name: label for label, name in enumerate(classes)}
    labels: dict[Path, int] = {}
    for words in read_lines(annotations):
        image, name = folder / "images" / words[0], words[1] if len(words) > 1 else ""
        if name not in label_of:
            raise BrokenFileError(annotations, f"gives {words[0]} the unknown class {name!r}")
        if image in labels:
            raise BrokenFileError(annotations, f"names {words[0]} twice")
        labels[image] = label_of[name]
    images = {file for file in (folder / "images").glob("*.JPEG") if not is_hidden(Path(file.name))}
    unlabelled = sorted(file.name for file in images - labels.keys())
    if unlabelled or not labels:
        raise BrokenFileError(annotations, f"gives no class to {few(unlabelled) or 'any image'}")
    return labels
