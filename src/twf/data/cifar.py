"""CIFAR-10 and CIFAR-100 from their Python batches (https://www.cs.toronto.edu/~kriz/cifar.html).

The batches are pickles of Python 2, and a pickle can run any code: this reader lets them make NumPy
arrays, text and containers of these, and nothing else.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twf.data.checks import BrokenFileError, as_images, as_labels, reading
from twf.data.images import resize_images
from twf.data.store import DataArrays, Split

SIDE = 32


class _Layout(NamedTuple):
    """Where one of the two archives keeps what."""

    folder: str
    train: tuple[str, ...]
    test: str
    meta: str  # the file with the names of the classes
    prefix: str  # of the keys of labels and of their names
    classes: int


BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
LAYOUTS = (
    _Layout("cifar-10-batches-py", BATCHES, "test_batch", "batches.meta", "", 10),
    _Layout("cifar-100-python", ("train",), "test", "meta", "fine_", 100),
)


def read(folder: Path, size: int) -> DataArrays:
    """The images of `cifar-10-batches-py` or `cifar-100-python`, whichever is in `folder`.

    CIFAR-100 has its fine labels. Raises `BrokenFileError`.
    """
    for layout in LAYOUTS:
        batches = folder / layout.folder
        if batches.is_dir():
            train = _split([batches / name for name in layout.train], layout, size)
            test = _split([batches / layout.test], layout, size)
            return DataArrays(train, test, _class_names(batches / layout.meta, layout))
    raise BrokenFileError(folder, f"has no {' or '.join(layout.folder for layout in LAYOUTS)}")


def _split(files: list[Path], layout: _Layout, size: int) -> Split:
    """The images of some batches, one after the other."""
    images, labels = [], []
    key = f"{layout.prefix}labels"
    for file in files:
        batch = _load(file)
        rows = as_images(file, "data", batch.get("data"), ("N", 3 * SIDE * SIDE))
        labels.append(as_labels(file, key, batch.get(key), len(rows), range(layout.classes)))
        images.append(rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
    return Split(resize_images(np.concatenate(images), size), np.concatenate(labels))


def _class_names(file: Path, layout: _Layout) -> list[str]:
    """The text for each label."""
    names = _load(file).get(f"{layout.prefix}label_names")
    texts = [_text(name) for name in names] if isinstance(names, list) else []
    if len(texts) != layout.classes or not all(isinstance(text, str) for text in texts):
        raise BrokenFileError(file, f"does not name {layout.classes} classes")
    return texts


# NumPy's own function for it, which has no public name and moved from module to module
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
}


class _Unpickler(pickle.Unpickler):  # noqa: S301
    """Gives a pickle nothing that could run code, however it asks for it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which could run code")
        return _ALLOWED[module, name]


def _load(file: Path) -> dict[str, Any]:
    """The dictionary in a batch; its keys as text."""
    with reading(file, "a batch"), file.open("rb") as stream:
        content = _Unpickler(stream, encoding="bytes").load()
    if not isinstance(content, dict):
        raise BrokenFileError(file, "is not a batch")
    return {_text(key): value for key, value in content.items()}


def _text(value: Any) -> Any:
    """Text that Python 2 wrote as `str`, which unpickles as bytes; any other value as it is."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
