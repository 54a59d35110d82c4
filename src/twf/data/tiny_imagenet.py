"""Tiny ImageNet from its folder of JPEG files (CS231n's `tiny-imagenet-200.zip`)."""

from __future__ import annotations

from pathlib import Path

from twf.data.images import read_classes, read_split
from twf.data.store import DataArrays


def read(folder: Path, size: int) -> DataArrays:
    """The training images, and the validation images as the test; the archive's test has no labels.

    Classes are the WordNet identifiers in sorted order, not in the order of `wnids.txt`.
    """
    root = folder / "tiny-imagenet-200"
    classes = sorted((root / "wnids.txt").read_text(encoding="utf-8").split())
    label_of = {name: label for label, name in enumerate(classes)}
    annotations = (root / "val" / "val_annotations.txt").read_text(encoding="utf-8")
    validation = {
        root / "val" / "images" / image: label_of[name]
        for image, name, *_ in map(str.split, annotations.splitlines())
    }
    train = read_classes([root / "train" / name / "images" for name in classes], size)
    return DataArrays(train, read_split(validation, size), classes)
