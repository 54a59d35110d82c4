"""The readers of the official archives: what was put in comes out, and what is broken is named."""

from __future__ import annotations

import pickle
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import canonical
import numpy as np
import official
import pytest
from hostile import Malicious
from PIL import Image
from scipy.io import savemat

from twf.data import cifar, cub200, svhn, tiny_imagenet
from twf.data.checks import BrokenFileError
from twf.data.store import DataArrays

READERS = {
    "cifar10": cifar.read,
    "cifar100": cifar.read,
    "svhn": svhn.read,
    "tiny-imagenet": tiny_imagenet.read,
    "cub200": cub200.read,
}
Unpacked = Callable[..., Path]


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    """`unpacked(name, arrays)`: the folder of what is in the archive of these arrays."""

    def make(name: str, arrays: official.Arrays | None = None) -> Path:
        official.LAYOUTS[name](tmp_path, arrays or official.some_arrays(name))
        return tmp_path

    return make


def assert_same(data: DataArrays, expected: official.Arrays) -> None:
    """The same labelled images in each split, in whatever order, and the same classes."""
    assert data.classes == expected["class_names"].tolist()
    for name, split in data.splits.items():
        assert split.images.dtype == np.uint8 and split.labels.dtype == np.int64
        images, labels = canonical.in_order(split.images, split.labels)
        wanted = canonical.in_order(expected[f"x_{name}"], expected[f"y_{name}"])
        assert np.array_equal(images, wanted[0]) and np.array_equal(labels, wanted[1])


@pytest.mark.parametrize("name", READERS)
def test_images_of_another_size_are_resized_as_torchvision_does(unpacked, torchvision, name):
    side = 64 if name in ("tiny-imagenet", "cub200") else 32  # the others have one size only
    arrays = official.some_arrays(name, side)
    folder = unpacked(name, arrays)
    resize = torchvision.transforms.Resize((24, 24))
    for key in ("x_train", "x_test"):
        small = [np.asarray(resize(Image.fromarray(image))) for image in arrays[key]]
        arrays[key] = np.stack(small)
    assert_same(READERS[name](folder, 24), arrays)


def test_cifar_pickled_by_this_python_is_read_too(unpacked):
    """Text for keys, NumPy's new module path: what a user's own tools write."""
    arrays = official.some_arrays("cifar100")
    folder = unpacked("cifar100", arrays)
    for split in ("train", "test"):
        rows = arrays[f"x_{split}"].transpose(0, 3, 1, 2).reshape(-1, 3072)
        batch = {"data": rows, "fine_labels": arrays[f"y_{split}"].tolist()}
        content = pickle.dumps(batch, protocol=4)
        assert b"numpy._core.multiarray" in content
        (folder / "cifar-100-python" / split).write_bytes(content)
    assert_same(cifar.read(folder, 32), arrays)


@pytest.mark.parametrize("position", ["batch", "label", "key"])
@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(
    unpacked, tmp_path, position, protocol
):
    folder, trace = unpacked("cifar10"), tmp_path / "trace"
    value: Any = Malicious(trace)
    value = {"batch": value, "label": {"labels": [value]}, "key": {(value,): 0}}[position]
    content = pickle.dumps(value, protocol)
    member_of(folder, "data_batch_3").write_bytes(content)
    with pytest.raises(BrokenFileError, match=r"data_batch_3 .*io\.open"):
        cifar.read(folder, 32)
    assert not trace.exists()
    pickle.loads(content)
    assert trace.exists()  # so that the test above speaks of a real danger


MEMBERS = {  # what each reader cannot do without
    "cifar10": ["data_batch_1", "test_batch", "batches.meta"],
    "cifar100": ["train", "test", "meta"],
    "svhn": ["train_32x32.mat", "test_32x32.mat"],
    "tiny-imagenet": ["wnids.txt", "val_annotations.txt", "val_3.JPEG"],
    "cub200": ["images.txt", "train_test_split.txt", "classes.txt", "bird_0003.jpg"],
}


def member_of(folder: Path, name: str) -> Path:
    (file,) = [f for f in folder.rglob(name) if f.is_file()]
    return file


@pytest.mark.parametrize(
    ("name", "member"), [(name, member) for name in MEMBERS for member in MEMBERS[name]]
)
@pytest.mark.parametrize("kept", [None, 0, 0.5])
def test_a_missing_or_damaged_member_is_named(unpacked, name, member, kept):
    folder = unpacked(name)
    file = member_of(folder, member)
    content = file.read_bytes()
    file.unlink()
    if kept is not None:
        file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(BrokenFileError) as caught:
        READERS[name](folder, 32)
    # a short table is told by the image that it lacks, or that lacks it
    assert member in str(caught.value) or (kept is not None and file.suffix == ".txt")


VAL, WNIDS = "tiny-imagenet val_annotations.txt", "tiny-imagenet wnids.txt"
SPLIT, LABELS = "cub200 train_test_split.txt", "cub200 image_class_labels.txt"
IMAGES, CLASSES = "cub200 images.txt", "cub200 classes.txt"
TABLES = [  # archive and file, old, new, what is named
    (VAL, "val_0.JPEG\tn01443537", "val_0.JPEG\tn99999999", "val_0.JPEG .*'n99999999'"),
    (VAL, "val_0.JPEG", "val_1.JPEG", "val_1.JPEG twice"),
    (VAL, "val_0.JPEG\tn01443537\t0\t32\t44\t62\n", "", "no class to val_0.JPEG"),
    (WNIDS, "n02124075", "n04067472", "class twice"),
    (SPLIT, "1 1\n", "1 2\n", "2 for image 1 "),
    (LABELS, "1 1\n", "", "nothing for image 1 "),
    (IMAGES, "1 001", "77 001", "image 77 "),
    (IMAGES, "2 001", "1 001", "'1 001"),
    (CLASSES, "1 001", "0 001", "from 1"),
]


@pytest.mark.parametrize(("table", "old", "new", "named"), TABLES)
def test_a_table_that_does_not_fit_is_named(unpacked, table, old, new, named):
    name, member = table.split()
    folder = unpacked(name)
    file = member_of(folder, member)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(BrokenFileError, match=rf"\.txt .*{named}"):
        READERS[name](folder, 32)


ROWS, X = np.zeros((2, 3072), np.uint8), np.zeros((32, 32, 3, 2), np.uint8)
CONTENTS: list[tuple[str, Any, str]] = [  # of which file, what is in it, and what is named
    ("data_batch_2", [1, 2], "batch"),
    ("data_batch_2", {b"data": ROWS[:, 1:], b"labels": [0, 1]}, r"data as uint8 \[2, 3071\]"),
    ("data_batch_2", {b"data": ROWS, b"labels": [[0], [1, 2]]}, "labels"),
    ("data_batch_2", {b"data": ROWS, b"labels": [0, 10]}, "label 10 in labels"),
    ("test_32x32.mat", {"X": X}, "y as"),
    ("test_32x32.mat", {"X": X.swapaxes(2, 3)}, r"X as uint8 \[32, 32, 2, 3\]"),
    ("test_32x32.mat", {"X": X, "y": np.array([[1], [11]], np.uint8)}, "label 11 in y"),
]


@pytest.mark.parametrize(("member", "content", "named"), CONTENTS)
def test_wrong_content_is_named_with_its_file(unpacked, member, content, named):
    name = "svhn" if member.endswith(".mat") else "cifar10"
    file = member_of(unpacked(name), member)
    if name == "svhn":
        savemat(file, content)
    else:
        file.write_bytes(official.python2_pickle(content))
    with pytest.raises(BrokenFileError, match=rf"{re.escape(str(file))} .*{named}"):
        READERS[name](file.parent if name == "svhn" else file.parent.parent, 32)


def test_reading_images_holds_no_second_copy_of_them(unpacked):
    """11 MiB of images: besides them one image at a time."""
    arrays = official.some_arrays("cub200", side=16)
    keys = ("x_train", "y_train", "x_test", "y_test")
    folder = unpacked("cub200", arrays | {key: np.concatenate([arrays[key]] * 3) for key in keys})
    tracemalloc.start()
    data = cub200.read(folder, 224)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    total = data.train.images.nbytes + data.test.images.nbytes
    assert total <= peak < 1.2 * total
