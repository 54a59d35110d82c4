"""The one form that every data set takes: a safetensors file of images, labels and a fingerprint.

`train_images`, `test_images` uint8 [N, H, W, 3]; `train_labels`, `test_labels` int64 [N]. A split's
images stand in canonical order, that of their digests: the same data give the same file, whatever
route they came by. Preparing data imports no torch; only `load` does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from twf.errors import UserError
from twf.files import atomic

if TYPE_CHECKING:
    from torch import Tensor

VERSION = "2"  # of the file's form; raised by each change of it
PIECE = 2**24  # bytes of images that are gathered, hashed and written at once
TYPES = {np.dtype("<i8"): "I64", np.dtype("u1"): "U8"}  # the names that safetensors has for them

Images = NDArray[np.uint8]  # [N, H, W, 3]
Labels = NDArray[np.int64]  # [N]


@dataclass(frozen=True)
class DataArrays:
    """A data set as a reader gives it: images uint8 [N, H, W, 3], labels int64 [N].

    The arrays may be views of any layout. Nobody changes them once a digest was asked for.
    """

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    classes: list[str]  # the name of each label

    @cached_property
    def train_digests(self) -> list[bytes]:
        """`digests` of the training images, computed once."""
        return digests(self.train_images, self.train_labels)

    @cached_property
    def test_digests(self) -> list[bytes]:
        """`digests` of the test images, computed once."""
        return digests(self.test_images, self.test_labels)


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


def pieces(array: NDArray[np.generic]) -> Iterator[slice]:
    """Slices along the first axis of `PIECE` bytes or one row, whichever is more, in order."""
    rows = max(1, PIECE // max(1, array[:1].nbytes))
    return (slice(start, start + rows) for start in range(0, len(array), rows))


def digests(images: Images, labels: Labels) -> list[bytes]:
    """What identifies each labelled image by content, [N] of 32 bytes, in the images' order.

    The SHA-256 of label (2 little-endian bytes) and raw RGB bytes, rows first.
    """
    found = []
    for piece in pieces(images):
        contiguous = np.ascontiguousarray(images[piece])
        for image, label in zip(contiguous, labels[piece].astype("<u2"), strict=True):
            digest = hashlib.sha256(label.tobytes())
            digest.update(image.data)
            found.append(digest.digest())
    return found


def fingerprint(images: Images, labels: Labels) -> str:
    """What identifies a labelled image set by content, whatever its order: 64 hexadecimal digits.

    The SHA-256 of the images' sorted `digests`.
    """
    return combine(digests(images, labels))


def combine(digests: list[bytes]) -> str:
    """The `fingerprint` of images whose digests are known."""
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def save(path: Path, name: str, arrays: DataArrays) -> None:
    """Write `arrays` as the data set `name`; the same data, in any order, give the same bytes.

    Besides `arrays` it holds some `PIECE`s in memory, never a second copy of the images.
    """
    train, test = _canonical_order(arrays.train_digests), _canonical_order(arrays.test_digests)
    metadata = {
        "name": name,
        "classes": json.dumps(arrays.classes),
        "train_fingerprint": combine(arrays.train_digests),
        "test_fingerprint": combine(arrays.test_digests),
        "twf_data_version": VERSION,
    }
    with atomic(path) as partial:
        _write(
            partial,
            {
                "train_labels": (arrays.train_labels, train),
                "test_labels": (arrays.test_labels, test),
                "train_images": (arrays.train_images, train),
                "test_images": (arrays.test_images, test),
            },
            metadata,
        )


def _canonical_order(digests: list[bytes]) -> NDArray[np.int64]:
    """The positions of the images sorted by digest. Equal digests are equal images."""
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)


def _write(
    path: Path,
    tensors: dict[str, tuple[NDArray[np.generic], NDArray[np.int64]]],  # array, order of its rows
    metadata: dict[str, str],
) -> None:
    """Write a safetensors file piece by piece.

    Its form (https://github.com/huggingface/safetensors#format): the header's length in 8 bytes,
    the header as JSON, and the tensors' bytes. safetensors' own writer wants all of them at once,
    and orders the metadata differently in each process.
    """
    header: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for key, (array, _) in tensors.items():
        start, end = end, end + array.nbytes
        header[key] = {
            "dtype": TYPES[array.dtype],
            "shape": array.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the labels that follow, int64, start at a multiple of 8
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array, order in tensors.values():
            for piece in pieces(array):
                file.write(np.ascontiguousarray(array[order[piece]]).data)


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
