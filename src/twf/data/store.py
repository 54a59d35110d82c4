"""The one form that every data set takes: a safetensors file of images, labels and a fingerprint.

`train_images`, `test_images` uint8 [N, H, W, 3]; `train_labels`, `test_labels` int64 [N].
Preparing data imports no torch; only `load` does.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from twf.errors import UserError
from twf.files import atomic, tidy_safetensors

if TYPE_CHECKING:
    from torch import Tensor

VERSION = "1"  # of the file's form; raised by each change of it

Images = NDArray[np.uint8]  # [N, H, W, 3]
Labels = NDArray[np.int64]  # [N]


@dataclass(frozen=True)
class DataArrays:
    """A data set as a reader gives it: images uint8 [N, H, W, 3], labels int64 [N]."""

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    classes: list[str]  # the name of each label


@dataclass(frozen=True)
class Dataset:
    """A prepared data set: images uint8 [N, H, W, 3] and labels int64 [N], memory-mapped."""

    name: str
    classes: list[str]
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    train_fingerprint: str
    test_fingerprint: str


def fingerprint(images: Images, labels: Labels) -> str:
    """What identifies a labelled image set by content, whatever its order: 64 hexadecimal digits.

    The SHA-256 of the sorted SHA-256 digests of label (2 little-endian bytes) and raw RGB bytes.
    """
    digests = []
    images = np.ascontiguousarray(images)
    for image, label in zip(images, labels.astype("<u2"), strict=True):
        digest = hashlib.sha256(label.tobytes())
        digest.update(image.data)
        digests.append(digest.digest())
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def save(path: Path, name: str, arrays: DataArrays) -> None:
    """Write `arrays` as the data set `name`; the same arrays always give the same bytes."""
    tensors = {
        "train_images": arrays.train_images,
        "train_labels": arrays.train_labels,
        "test_images": arrays.test_images,
        "test_labels": arrays.test_labels,
    }
    metadata = {
        "name": name,
        "classes": json.dumps(arrays.classes),
        "train_fingerprint": fingerprint(arrays.train_images, arrays.train_labels),
        "test_fingerprint": fingerprint(arrays.test_images, arrays.test_labels),
        "twf_data_version": VERSION,
    }
    with atomic(path) as partial:
        save_file({key: np.ascontiguousarray(a) for key, a in tensors.items()}, partial, metadata)
        tidy_safetensors(partial)


def load(path: Path) -> Dataset:
    """Open a prepared data set, memory-mapped.

    Raises `UserError` where the file is missing, torn, or of another version.
    """
    remedy = f"`twf data prepare {path.stem}` makes it anew"
    if not path.exists():
        raise UserError(f"no data set {path}: `twf data prepare {path.stem}` makes it")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            version = metadata.get("twf_data_version", "none")
            if version != VERSION:
                raise UserError(
                    f"{path} has data version {version}, this code reads {VERSION}; {remedy}"
                )
            return Dataset(
                name=metadata["name"],
                classes=json.loads(metadata["classes"]),
                train_images=file.get_tensor("train_images"),
                train_labels=file.get_tensor("train_labels"),
                test_images=file.get_tensor("test_images"),
                test_labels=file.get_tensor("test_labels"),
                train_fingerprint=metadata["train_fingerprint"],
                test_fingerprint=metadata["test_fingerprint"],
            )
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); {remedy}") from None
