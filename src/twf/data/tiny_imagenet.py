"""Tiny ImageNet from its folder of JPEG files (CS231n's `tiny-imagenet-200.zip`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twf.data.images import read_images
from twf.data.official import broken, fetch_again, read_lines
from twf.data.store import DataArrays, Labels

NAME = "tiny-imagenet"


def read(folder: Path, size: int) -> DataArrays:
    """The training images, and the validation images as the test; the archive's test has no labels.

    Classes are the WordNet identifiers in sorted order, not in the order of `wnids.txt`. Raises
    `UserError` that names a missing or damaged file.
    """
    root = folder / "tiny-imagenet-200"
    listed = root / "wnids.txt"
    classes = sorted(words[0] for words in read_lines(listed, NAME))
    if len(set(classes)) != len(classes) or not classes:
        raise broken(listed, "names a class twice, or none", NAME)
    train_files, train_labels = _train(root / "train", classes)
    test_files, test_labels = _validation(root / "val", classes)
    return DataArrays(
        train_images=read_images(train_files, size, fetch_again(NAME)),
        train_labels=train_labels,
        test_images=read_images(test_files, size, fetch_again(NAME)),
        test_labels=test_labels,
        classes=classes,
    )


def _train(folder: Path, classes: list[str]) -> tuple[list[Path], Labels]:
    """The files `CLASS/images/*.JPEG` and their labels."""
    files, labels = [], []
    for label, name in enumerate(classes):
        members = sorted((folder / name / "images").glob("*.JPEG"))
        if not members:
            raise broken(folder / name / "images", "has no image", NAME)
        files += members
        labels += [label] * len(members)
    return files, np.array(labels, dtype=np.int64)


def _validation(folder: Path, classes: list[str]) -> tuple[list[Path], Labels]:
    """The files in `images/`, and their labels by `val_annotations.txt`."""
    annotations = folder / "val_annotations.txt"
    label_of = {name: label for label, name in enumerate(classes)}
    labels: dict[str, int] = {}
    for words in read_lines(annotations, NAME):
        image, name = words[0], words[1] if len(words) > 1 else ""
        if name not in label_of:
            raise broken(annotations, f"gives {image} the class {name!r}, which is unknown", NAME)
        if image in labels:
            raise broken(annotations, f"names {image} twice", NAME)
        labels[image] = label_of[name]
    unlabelled = {file.name for file in (folder / "images").glob("*.JPEG")} - labels.keys()
    if unlabelled or not labels:
        what = min(unlabelled, default="any image")
        raise broken(annotations, f"gives no class to {what}", NAME)
    files = [folder / "images" / image for image in labels]
    return files, np.array(list(labels.values()), dtype=np.int64)
