"""A user's NumPy archive, and what is named of each way in which it can be wrong."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twf.data import formats
from twf.errors import UserError

ARRAYS: dict[str, Any] = {
    "x_train": np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), dtype=np.uint8),
    "y_train": np.arange(9) % 3,
    "x_test": np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8),
    "y_test": np.arange(3),
}


@pytest.mark.parametrize(("write", "kind"), [(np.savez, np.uint8), (np.savez_compressed, np.int64)])
@pytest.mark.parametrize("names", [None, ["ape", "bee", "cat"]])
def test_an_archive_is_read(tmp_path, kind, write, names):
    arrays = ARRAYS | {"y_train": ARRAYS["y_train"].astype(kind)[:, None]}
    write(tmp_path / "mine.npz", **arrays, **({"class_names": names} if names else {}))
    data = formats.read_npz(tmp_path / "mine.npz", 3)
    for name, split in data.splits.items():
        assert np.array_equal(split.images, ARRAYS[f"x_{name}"])
        assert np.array_equal(split.labels, ARRAYS[f"y_{name}"])
        assert split.labels.dtype == np.int64
    assert data.classes == (names or ["0", "1", "2"])


def bomb(file: Path) -> None:
    """Its header claims more than any memory holds."""
    with zipfile.ZipFile(file, "w") as packed:
        for name, array in ARRAYS.items():
            with packed.open(f"{name}.npy", "w") as member:
                header = {"descr": array.dtype.str, "fortran_order": False}
                shape = (10**15, *array.shape[1:])
                np.lib.format.write_array_header_1_0(member, header | {"shape": shape})


# What is named, and the changes to a good archive; or what else is written.
WRONG: list[tuple[str, dict[str, Any] | Callable[[Path], object]]] = [
    ("has no x_test", {"x_test": None}),
    (r"x_train as float32 \[9, 16, 16, 3\]", {"x_train": np.zeros((9, 16, 16, 3), np.float32)}),
    (r"x_test as uint8 \[3, 16, 16\]", {"x_test": np.zeros((3, 16, 16), np.uint8)}),
    (r"y_train as int64 \[8\]", {"y_train": np.arange(8) % 3}),
    (r"y_test as int64 \[3, 2\]", {"y_test": np.arange(6).reshape(3, 2) % 3}),
    ("label 3 in y_test", {"y_test": np.array([0, 1, 3])}),
    ("label -1 in y_train", {"y_train": np.arange(9) % 3 - 1}),
    ("class_names", {"class_names": np.array(["ape", "bee"])}),
    ("allow_pickle=False", {"class_names": np.array(["a", "b", None], object)}),
    ("No such file", lambda file: None),
    ("cannot be read", lambda file: np.save(file.open("wb"), ARRAYS["x_train"])),
    ("cannot be read", bomb),
]


@pytest.mark.parametrize(("named", "written"), WRONG)
def test_a_wrong_archive_is_named_with_what_is_needed(tmp_path, named, written):
    file = tmp_path / "mine.npz"
    if isinstance(written, dict):
        arrays = {key: array for key, array in (ARRAYS | written).items() if array is not None}
        np.savez(file, **arrays)
    else:
        written(file)
    with pytest.raises(UserError, match=rf"mine\.npz.*{named}.*x_train, y_train, x_test, y_test"):
        formats.read_npz(file, 3)
