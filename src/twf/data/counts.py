"""The number of images of a data set, before or after it is prepared. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from twf import files
from twf.data import archive, registry
from twf.data.registry import Splits
from twf.study import products

if TYPE_CHECKING:
    from twf.study import params

DIGITS = 1797  # images that scikit-learn carries


def count(name: str, dataset: params.Dataset) -> Splits:
    """The images of each split, from the prepared file, or else from what it will be made of.

    Raises `UserError` where a user's own archive cannot be read.
    """
    path = files.data_file(name)
    made = products.made_data(name)
    if made is not None and made == products.data_plan(dataset, made):
        header = files.header(path)
        if {"train_labels", "test_labels"} <= header.keys():
            train, test = (header[f"{split}_labels"]["shape"][0] for split in ("train", "test"))
            return Splits(train=train, test=test)
    if dataset.reader == "official":
        return registry.images_entry(dataset.archive).images
    if dataset.reader == "archive":
        arrays = archive.read_npz(Path(dataset.file), dataset.classes)
        return Splits(train=len(arrays.train.labels), test=len(arrays.test.labels))
    if dataset.reader == "digits":
        test = round(dataset.test_share * DIGITS)  # the split is by class, so it may be a few more
        return Splits(train=DIGITS - test, test=test)
    return Splits(
        train=dataset.classes * dataset.train_per_class,
        test=dataset.classes * dataset.test_per_class,
    )
