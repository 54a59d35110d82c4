"""A user's NumPy archive, and what is said of each way in which it can be wrong."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twf.data import archive
from twf.errors import UserError

Arrays = dict[str, Any]


@pytest.fixture
def arrays() -> Arrays:
    generator = np.random.default_rng(0)
    return {
        "x_train": generator.integers(0, 256, (9, 16, 16, 3), dtype=np.uint8),
        "y_train": np.arange(9) % 3,
        "x_test": generator.integers(0, 256, (3, 16, 16, 3), dtype=np.uint8),
        "y_test": np.arange(3),
    }


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_an_archive_is_read(tmp_path, arrays, kind, write):
    labels = arrays["y_train"].astype(kind)[:, None]
    write(tmp_path / "mine.npz", **arrays | {"y_train": labels})
    read = archive.read_npz(tmp_path / "mine.npz", 3)
    assert np.array_equal(read.train.images, arrays["x_train"])
    assert np.array_equal(read.test.images, arrays["x_test"])
    assert np.array_equal(read.train.labels, arrays["y_train"])
    assert read.train.labels.dtype == read.test.labels.dtype == np.int64
    assert read.classes == ["0", "1", "2"]


def test_class_names_are_read(tmp_path, arrays):
    np.savez(tmp_path / "mine.npz", **arrays, class_names=["ape", "bee", "cat"])
    assert archive.read_npz(tmp_path / "mine.npz", 3).classes == ["ape", "bee", "cat"]


WRONG: list[tuple[str, Arrays]] = [  # what is named, and the changes to a good archive
    ("x_test", {"x_test": None}),
    ("y_train, y_test", {"y_train": None, "y_test": None}),
    (r"x_train as float32 \[9, 16, 16, 3\]", {"x_train": np.zeros((9, 16, 16, 3), np.float32)}),
    (r"x_train as uint8 \[9, 3, 16, 16\]", {"x_train": np.zeros((9, 3, 16, 16), np.uint8)}),
    (r"x_test as uint8 \[3, 16, 16\]", {"x_test": np.zeros((3, 16, 16), np.uint8)}),
    (r"y_train as float64 \[9\]", {"y_train": np.zeros(9)}),
    (r"y_train as int64 \[8\]", {"y_train": np.arange(8) % 3}),
    (r"y_test as int64 \[3, 2\]", {"y_test": np.arange(6).reshape(3, 2) % 3}),
    ("label 3 in y_test", {"y_test": np.array([0, 1, 3])}),
    ("label -1 in y_train", {"y_train": np.arange(9) % 3 - 1}),
    (r"class_names as <U3 \[2\]", {"class_names": np.array(["ape", "bee"])}),
    (r"class_names as int64 \[3\]", {"class_names": np.arange(3)}),
    ("allow_pickle=False", {"class_names": np.array(["a", "b", None], object)}),
]


@pytest.mark.parametrize(("named", "changes"), WRONG)
def test_wrong_contents_are_named(tmp_path, arrays, named, changes):
    arrays |= changes
    np.savez(tmp_path / "mine.npz", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(UserError, match=rf"mine\.npz.* {named}"):
        archive.read_npz(tmp_path / "mine.npz", 3)


def cut(file: Path, arrays: Arrays) -> None:
    np.savez(file, **arrays)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def damage(file: Path, write: Callable[..., None], arrays: Arrays) -> None:
    write(file, **arrays)
    content = bytearray(file.read_bytes())
    content[1000:1200] = bytes(200)
    file.write_bytes(content)


def add_text(file: Path, arrays: Arrays) -> None:
    np.savez(file, **arrays)
    with zipfile.ZipFile(file, "a") as packed:
        packed.writestr("class_names", "ape bee cat")


BROKEN: dict[str, Callable[[Path, Arrays], object]] = {
    "missing": lambda file, arrays: None,
    "a single array": lambda file, arrays: np.save(file.open("wb"), arrays["x_train"]),
    "no array in it": add_text,
    "cut short": cut,
    "damaged": lambda file, arrays: damage(file, np.savez, arrays),
    "damaged and compressed": lambda file, arrays: damage(file, np.savez_compressed, arrays),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_no_archive_is_named(tmp_path, arrays, how):
    BROKEN[how](tmp_path / "mine.npz", arrays)
    with pytest.raises(UserError, match=r"mine\.npz.*(savez|x_train, y_train, x_test, y_test)"):
        archive.read_npz(tmp_path / "mine.npz", 3)


@pytest.mark.parametrize("key", ["x_train", "y_test"])
def test_a_header_that_claims_more_than_memory_holds_names_file_and_key(tmp_path, arrays, key):
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as packed:
        for name, array in arrays.items():
            shape = (10**15 if name == key else len(array), *array.shape[1:])
            with packed.open(f"{name}.npy", "w") as member:
                header = {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                member.write(array.tobytes())
    with pytest.raises(UserError, match=rf"mine\.npz .*memory.* {key} "):
        archive.read_npz(tmp_path / "mine.npz", 3)
