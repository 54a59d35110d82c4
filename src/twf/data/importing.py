"""Data that came by another way than the official archives, checked to be the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from twf.data import folders, store
from twf.data.archive import read_npz
from twf.data.images import resize_images
from twf.data.store import DataArrays, Images, Labels
from twf.errors import UserError


def import_file(
    name: str,
    path: Path,
    output: Path,
    *,
    classes: int,
    size: int,
    counts: Mapping[str, int],
    fingerprints: Mapping[str, str | None],
    class_names: list[str] | None = None,
) -> None:
    """Write the data set `name` to `output` from a NumPy archive, or from a folder per class.

    `counts` and `fingerprints` (none where unknown) are those of the official `train` and `test`
    images at `size` pixels; `class_names` the official names in the order of labels, where known.
    Images of another size are squashed to `size`. Raises `UserError` and leaves `output` as it was
    where the file cannot be read or `check` refuses it.
    """
    arrays = folders.read(path, size) if path.is_dir() else read_npz(path, classes)
    arrays = replace(
        arrays,
        train_images=resize_images(arrays.train_images, size),
        test_images=resize_images(arrays.test_images, size),
    )
    if class_names is not None:
        arrays = in_class_order(arrays, class_names)
    check(arrays, counts, fingerprints, classes, path)
    store.save(output, name, arrays)


def in_class_order(arrays: DataArrays, class_names: list[str]) -> DataArrays:
    """`arrays` with its classes in the order of `class_names`, where those are the same names.

    Labels without names, `0` to `classes - 1`, are taken to be in this order already.
    """
    if arrays.classes == [str(label) for label in range(len(class_names))]:
        return replace(arrays, classes=class_names)
    if sorted(arrays.classes) != sorted(class_names):
        return arrays
    label = np.array([class_names.index(name) for name in arrays.classes], dtype=np.int64)
    return replace(
        arrays,
        train_labels=label[arrays.train_labels],
        test_labels=label[arrays.test_labels],
        classes=class_names,
    )


def check(
    arrays: DataArrays,
    counts: Mapping[str, int],
    fingerprints: Mapping[str, str | None],
    classes: int,
    path: Path,
) -> None:
    """Raise `UserError` where `arrays`, read from `path`, are not the images that are expected.

    `counts` and `fingerprints` have the keys `train` and `test`. The error says what was expected,
    what was found, and the likely cause.
    """
    if len(arrays.classes) != classes:
        raise UserError(f"{path} has {len(arrays.classes)} classes, expected {classes}")
    found = {"train": len(arrays.train_labels), "test": len(arrays.test_labels)}
    for split, count in counts.items():
        if found[split] != count:
            raise UserError(
                f"{path} has {found[split]:,} {split} images, expected {count:,}; "
                + _cause_of_counts(found, counts)
            )
    splits = {
        "train": (arrays.train_images, arrays.train_labels, arrays.train_digests),
        "test": (arrays.test_images, arrays.test_labels, arrays.test_digests),
    }
    for split, expected in fingerprints.items():
        images, labels, digests = splits[split]
        if expected is not None and (fingerprint := store.combine(digests)) != expected:
            raise UserError(
                f"the {split} images of {path} have the fingerprint {fingerprint}, expected "
                f"{expected}; {_cause_of_content(images, labels, expected)}"
            )


def _cause_of_counts(found: Mapping[str, int], counts: Mapping[str, int]) -> str:
    if found["train"] == counts["test"] and found["test"] == counts["train"]:
        return "training and test images are exchanged"
    if sum(found.values()) == sum(counts.values()):
        return "the split is not the official one"
    if any(found[split] < counts[split] for split in counts):
        return "images are missing, or some were held out: bring the whole official split"
    return "it holds images that the official archive does not have, or some twice"


def _cause_of_content(images: Images, labels: Labels, expected: str) -> str:
    """The likely cause of another fingerprint: the usual mistakes are tried."""
    if store.fingerprint(images[..., ::-1], labels) == expected:
        return "its channels are blue-green-red: turn them round, images[..., ::-1]"
    if store.fingerprint(images.swapaxes(1, 2), labels) == expected:
        return "its rows and columns are exchanged: images.swapaxes(1, 2)"
    return (
        "its classes are in another order, or its images were resized by another filter or saved "
        "with loss (as JPEG)"
    )
