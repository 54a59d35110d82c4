"""A user's NumPy archive, and what is said of each way in which it can be wrong."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import canonical
import numpy as np
import pytest

from twf.data import archive, prepare, store
from twf.errors import UserError
from twf.study.params import ArchiveData, Augmentation

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


def described(file: Path) -> ArchiveData:
    augmentation = Augmentation(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])
    return ArchiveData(
        title="Mine",
        reader="archive",
        file=str(file),
        classes=3,
        size=16,
        augmentation=augmentation,
    )


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_an_archive_is_read(
    tmp_path: Path, arrays: Arrays, kind: type, write: Callable[..., None]
) -> None:
    arrays["y_train"] = arrays["y_train"].astype(kind)
    write(tmp_path / "mine.npz", **arrays)
    read = archive.read(described(tmp_path / "mine.npz"))
    assert np.array_equal(read.train_images, arrays["x_train"])
    assert np.array_equal(read.test_images, arrays["x_test"])
    assert np.array_equal(read.train_labels, arrays["y_train"])
    assert read.train_labels.dtype == read.test_labels.dtype == np.int64
    assert read.classes == ["0", "1", "2"]


def test_class_names_are_read(tmp_path: Path, arrays: Arrays) -> None:
    np.savez(tmp_path / "mine.npz", **arrays, class_names=["ape", "bee", "cat"])
    assert archive.read(described(tmp_path / "mine.npz")).classes == ["ape", "bee", "cat"]


def test_an_archive_is_prepared(tmp_path: Path, arrays: Arrays) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    prepare("mine", described(tmp_path / "mine.npz"), tmp_path / "mine.safetensors")
    loaded = store.load(tmp_path / "mine.safetensors")
    images, labels = canonical.in_order(arrays["x_train"], arrays["y_train"])
    assert np.array_equal(loaded.train_images.numpy(), images)
    assert np.array_equal(loaded.train_labels.numpy(), labels)
    assert loaded.test_fingerprint == store.fingerprint(arrays["x_test"], arrays["y_test"])


WRONG: dict[str, Arrays] = {  # what is said, and the changes to a good archive it is said of
    "no x_test; needed: x_train": {"x_test": None},
    "no y_train, y_test;": {"y_train": None, "y_test": None},
    r"x_train is float32 \[9, 16, 16, 3\]; needed: uint8": {
        "x_train": np.zeros((9, 16, 16, 3), np.float32)
    },
    r"x_train is uint8 \[9, 3, 16, 16\]; needed: uint8 \[N, H, W, 3\]": {
        "x_train": np.zeros((9, 3, 16, 16), np.uint8)
    },
    r"x_test is uint8 \[3, 16, 16\]; needed: uint8 \[N, H, W, 3\]": {
        "x_test": np.zeros((3, 16, 16), np.uint8)
    },
    r"y_train is float64 \[9\]; needed: integers \[9\]": {"y_train": np.zeros(9)},
    r"y_train is int64 \[8\]; needed: integers \[9\]": {"y_train": np.arange(8) % 3},
    r"y_test is int64 \[3, 1\]; needed: integers \[3\]": {"y_test": np.arange(3)[:, None]},
    "y_test has the label 3; needed: 0 to 2": {"y_test": np.array([0, 1, 3])},
    "y_train has the label -1; needed: 0 to 2": {"y_train": np.arange(9) % 3 - 1},
    r"class_names is <U3 \[2\]; needed: text \[3\]": {"class_names": np.array(["ape", "bee"])},
    r"class_names is int64 \[3\]; needed: text \[3\]": {"class_names": np.arange(3)},
    "cannot be read as plain arrays": {"class_names": np.array(["a", "b", None], object)},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_contents_are_named(tmp_path: Path, arrays: Arrays, message: str) -> None:
    arrays |= WRONG[message]
    np.savez(tmp_path / "mine.npz", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(UserError, match=message) as caught:
        archive.read(described(tmp_path / "mine.npz"))
    assert str(tmp_path / "mine.npz") in str(caught.value)


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no archive .*mine\.npz.*x_train, y_train, x_test, y_t"):
        archive.read(described(tmp_path / "mine.npz"))


def test_what_is_no_archive_is_named(tmp_path: Path, arrays: Arrays) -> None:
    with (tmp_path / "mine.npz").open("wb") as file:
        np.save(file, arrays["x_train"])
    with pytest.raises(UserError, match=r"mine\.npz is not a NumPy archive.*numpy\.savez"):
        archive.read(described(tmp_path / "mine.npz"))


def test_a_torn_archive_is_named(tmp_path: Path, arrays: Arrays) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    content = (tmp_path / "mine.npz").read_bytes()
    (tmp_path / "mine.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"mine\.npz is not a NumPy archive, or is cut short"):
        archive.read(described(tmp_path / "mine.npz"))


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_a_damaged_archive_is_named(
    tmp_path: Path, arrays: Arrays, write: Callable[..., None]
) -> None:
    write(tmp_path / "mine.npz", **arrays)
    content = bytearray((tmp_path / "mine.npz").read_bytes())
    content[1000:1200] = bytes(200)
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.npz cannot be read"):
        archive.read(described(tmp_path / "mine.npz"))


@pytest.mark.parametrize("key", ["x_train", "y_test"])
def test_a_header_that_claims_more_than_memory_holds_names_file_and_key(
    tmp_path: Path, arrays: Arrays, key: str
) -> None:
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as packed:
        for name, array in arrays.items():
            shape = (10**15 if name == key else len(array), *array.shape[1:])
            with packed.open(f"{name}.npy", "w") as member:
                header = {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                member.write(array.tobytes())
    with pytest.raises(UserError, match=rf"mine\.npz: {key} "):
        prepare("mine", described(tmp_path / "mine.npz"), tmp_path / "mine.safetensors")
