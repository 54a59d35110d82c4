"""The file of every prepared data set: safetensors with images, labels and fingerprints.

`train_images`, `test_images` uint8 [N, H, W, 3]; `train_labels`, `test_labels` int64 [N]. Each
split is sorted by the images' digests, so the same data give the same file, wherever they come
from. Preparing data imports no torch; only `load` does.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from twf.errors import UserError
from twf.files import atomic
from twf.study.products import MADE_OF

if TYPE_CHECKING:
    from torch import Tensor

VERSION = "2"  # of the file's format; raised by each change of it
SPLITS, KINDS = ("train", "test"), ("images", "labels")  # of a `Dataset`, in its order
TYPES = {np.dtype("<i8"): "I64", np.dtype("u1"): "U8"}  # the names that safetensors has for them

Images = NDArray[np.uint8]  # [N, H, W, 3]
Labels = NDArray[np.int64]  # [N]


@dataclass(frozen=True)
class Split:
    """Labelled images: uint8 [N, H, W, 3], which may be a view of any layout, and int64 [N].

    Nothing changes them once a digest was computed.
    """

    images: Images
    labels: Labels

    @cached_property
    def digests(self) -> list[bytes]:
        """The SHA-256 of each label (2 little-endian bytes) and its image (RGB, row after row)."""
        return [
            sha256(label.tobytes() + image.tobytes()).digest()
            for image, label in zip(self.images, self.labels.astype("<u2"), strict=True)
        ]

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The positions of the images sorted by digest. Equal digests are equal images."""
        return np.array(sorted(range(len(self.digests)), key=self.digests.__getitem__), np.int64)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the sorted digests in hexadecimal: the same for every order of images."""
        return sha256(b"".join(sorted(self.digests))).hexdigest()


@dataclass(frozen=True)
class DataArrays:
    """A data set as a reader returns it."""

    train: Split
    test: Split
    classes: list[str]  # the name of each label

    @property
    def splits(self) -> dict[str, Split]:
        """The splits by name."""
        return {"train": self.train, "test": self.test}


@dataclass(frozen=True)
class Dataset:
    """A prepared data set: images uint8 [N, H, W, 3] and labels int64 [N], memory-mapped."""

    classes: list[str]
    train_images: "Tensor"
    train_labels: "Tensor"
    test_images: "Tensor"
    test_labels: "Tensor"
    train_fingerprint: str
    test_fingerprint: str


def save(path: Path, name: str, arrays: DataArrays, made_of: Mapping[str, Any]) -> None:
    """Write `arrays` as the data set `name`, each split in the order of its digests.

    The header has `made_of` too, the plan that they were made by. By the format's definition
    (https://github.com/huggingface/safetensors#format), as safetensors' own writer would take
    copies of all images and an order of the metadata that changes each time.
    """
    splits = arrays.splits
    tensors: dict[str, tuple[NDArray[np.generic], NDArray[np.int64]]] = {}  # with its rows' order
    tensors |= {f"{name}_labels": (split.labels, split.order) for name, split in splits.items()}
    tensors |= {f"{name}_images": (split.images, split.order) for name, split in splits.items()}
    metadata = {f"{name}_fingerprint": split.fingerprint for name, split in splits.items()}
    metadata |= {"name": name, "classes": json.dumps(arrays.classes), "twf_data_version": VERSION}
    metadata[MADE_OF] = json.dumps(dict(made_of), sort_keys=True)
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
    with atomic(path) as partial, partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array, order in tensors.values():
            for row in order:
                file.write(array[row].tobytes())


def load(path: Path) -> Dataset:
    """Open a prepared data set, memory-mapped.

    Raises `UserError` where the file is missing, damaged, or of another version.
    """
    remedy = f"`twf data prepare {path.stem}` makes it anew"
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            version = metadata.get("twf_data_version", "none")
            if version != VERSION:
                raise UserError(
                    f"{path} has data version {version}, this code reads {VERSION}; {remedy}"
                )
            dataset = Dataset(
                json.loads(metadata["classes"]),
                *(file.get_tensor(f"{name}_{key}") for name in SPLITS for key in KINDS),
                *(metadata[f"{name}_fingerprint"] for name in SPLITS),
            )
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); {remedy}") from None
    for name in SPLITS:
        images, labels = (getattr(dataset, f"{name}_{key}").numpy() for key in KINDS)
        if Split(images, labels).fingerprint != getattr(dataset, f"{name}_fingerprint"):
            raise UserError(f"{path} is damaged: its {name} images are not those written; {remedy}")
    return dataset
