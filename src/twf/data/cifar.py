"""CIFAR-10 and CIFAR-100 from their Python batches (https://www.cs.toronto.edu/~kriz/cifar.html).

The batches are pickles of Python 2, and a pickle can run any code: this reader lets it make NumPy
arrays, text and containers of them, and nothing else.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twf.data.images import resize_images
from twf.data.official import as_images, as_labels, broken
from twf.data.store import DataArrays, Images, Labels
from twf.errors import UserError

SIDE = 32


@dataclass(frozen=True)
class _Layout:
    """Where one of the two archives keeps what."""

    name: str  # in the registry
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: str  # the key in each batch
    meta: str
    class_names: str  # the key in `meta`
    classes: int


LAYOUTS = (
    _Layout(
        name="cifar10",
        folder="cifar-10-batches-py",
        train=tuple(f"data_batch_{i}" for i in range(1, 6)),
        test=("test_batch",),
        labels="labels",
        meta="batches.meta",
        class_names="label_names",
        classes=10,
    ),
    _Layout(
        name="cifar100",
        folder="cifar-100-python",
        train=("train",),
        test=("test",),
        labels="fine_labels",
        meta="meta",
        class_names="fine_label_names",
        classes=100,
    ),
)


def read(folder: Path, size: int) -> DataArrays:
    """The images of the one that `folder` holds, `cifar-10-batches-py` or `cifar-100-python`.

    CIFAR-100 has its fine labels. Raises `UserError` that names a missing or damaged file.
    """
    found = [layout for layout in LAYOUTS if (folder / layout.folder).is_dir()]
    if not found:
        wanted = " or ".join(f"{layout.folder}/ (`{layout.name}`)" for layout in LAYOUTS)
        raise UserError(f"{folder} has no {wanted}; fetch the archive again: `twf data fetch NAME`")
    layout = found[0]
    train_images, train_labels = _split(folder / layout.folder, layout.train, layout)
    test_images, test_labels = _split(folder / layout.folder, layout.test, layout)
    return DataArrays(
        train_images=resize_images(train_images, size),
        train_labels=train_labels,
        test_images=resize_images(test_images, size),
        test_labels=test_labels,
        classes=_class_names(folder / layout.folder / layout.meta, layout),
    )


def _split(folder: Path, members: tuple[str, ...], layout: _Layout) -> tuple[Images, Labels]:
    """Images uint8 [N, 32, 32, 3] and labels int64 [N] of some batches, one after the other."""
    images, labels = [], []
    for member in members:
        file = folder / member
        batch = _load(file, layout.name)
        rows = as_images(file, "data", batch.get("data"), (None, 3 * SIDE * SIDE), layout.name)
        known = range(layout.classes)
        key = layout.labels
        labels.append(as_labels(file, key, batch.get(key), len(rows), known, layout.name))
        images.append(rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
    return np.concatenate(images), np.concatenate(labels)


def _class_names(file: Path, layout: _Layout) -> list[str]:
    """The text for each label."""
    names = _load(file, layout.name).get(layout.class_names)
    texts = [_text(name) for name in names] if isinstance(names, list) else []
    if len(texts) != layout.classes or not all(isinstance(text, str) for text in texts):
        raise broken(file, f"does not name {layout.classes} classes", layout.name)
    return texts


class _RefusedError(Exception):
    """A pickle asks for a class that it does not need."""


# NumPy's own function for it, which has no public name and moved from module to module
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
}


class _Unpickler(pickle.Unpickler):
    """Gives a pickle nothing that could run code, however it asks for it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _RefusedError(f"{module}.{name}")
        return _ALLOWED[module, name]


def _load(file: Path, name: str) -> dict[str, Any]:
    """The dictionary in a batch; its keys as text."""
    try:
        with file.open("rb") as stream:
            content = _Unpickler(stream, encoding="bytes").load()
    except FileNotFoundError:
        raise broken(file, "is missing", name) from None
    except _RefusedError as refused:
        problem = f"asks for {refused}, which image batches never need and could run code"
        raise broken(file, problem, name) from None
    except Exception as error:  # a damaged pickle can raise anything
        raise broken(file, f"cannot be read ({error})", name) from None
    if not isinstance(content, dict):
        raise broken(file, "is not a batch", name)
    return {_text(key): value for key, value in content.items()}


def _text(value: Any) -> Any:
    """What Python 2 wrote as `str` is bytes here."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
