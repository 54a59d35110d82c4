"""CIFAR-10 and CIFAR-100 from their Python batches (https://www.cs.toronto.edu/~kriz/cifar.html).

The batches are pickles of Python 2, and a pickle can run any code: this reader lets them make NumPy
arrays, text and containers of these, and nothing else.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from twf.data.checks import reading
from twf.data.images import resize_images
from twf.data.store import DataArrays, Split

SIDE = 32


def read(folder: Path, size: int) -> DataArrays:
    """The images of `cifar-10-batches-py` or `cifar-100-python`, whichever is in `folder`.

    CIFAR-100 has its fine labels.
    """
    if (cifar10 := folder / "cifar-10-batches-py").is_dir():
        meta, prefix = cifar10 / "batches.meta", b""
        train, test = [cifar10 / f"data_batch_{i}" for i in range(1, 6)], cifar10 / "test_batch"
    else:
        cifar100 = folder / "cifar-100-python"
        meta, prefix = cifar100 / "meta", b"fine_"
        train, test = [cifar100 / "train"], cifar100 / "test"
    names = [name.decode() for name in _load(meta)[prefix + b"label_names"]]
    return DataArrays(_split(train, prefix, size), _split([test], prefix, size), names)


def _split(files: list[Path], prefix: bytes, size: int) -> Split:
    """The images of some batches, one after the other."""
    batches = [_load(file) for file in files]
    rows = np.concatenate([batch[b"data"] for batch in batches])
    images = rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    labels = np.concatenate([np.array(batch[prefix + b"labels"], np.int64) for batch in batches])
    return Split(resize_images(images, size), labels)


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    # which has no public name, and has moved since
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
}


class _Unpickler(pickle.Unpickler):  # noqa: S301
    """Gives a pickle nothing that could run code, however it asks for it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which could run code")
        return _ALLOWED[module, name]


def _load(file: Path) -> dict[bytes, Any]:
    """The dictionary in a batch, whose text Python 2 wrote as bytes."""
    with reading(file, "a batch"), file.open("rb") as stream:
        batch: dict[bytes, Any] = _Unpickler(stream, encoding="bytes").load()
        return batch
