"""The readers of the official archives: what was put in comes out, and what is broken is named."""

from __future__ import annotations

import pickle
import re
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import canonical
import numpy as np
import official
import pytest
from PIL import Image
from scipy.io import savemat

from twf.data.images import resize_images
from twf.data.store import DataArrays
from twf.errors import UserError

READERS = {
    "cifar10": "cifar",
    "cifar100": "cifar",
    "svhn": "svhn",
    "tiny-imagenet": "tiny_imagenet",
    "cub200": "cub200",
}


def read(name: str, folder: Path, size: int = 32) -> DataArrays:
    return import_module(f"twf.data.{READERS[name]}").read(folder, size)


Unpacked = Callable[..., Path]


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    """`unpacked(name, arrays)`: the archive of the arrays, unpacked."""

    def make(name: str, arrays: official.Arrays | None = None) -> Path:
        archives = official.write_archives(name, tmp_path, arrays or official.some_arrays(name))
        return official.unpack(archives, tmp_path / "unpacked")

    return make


def assert_same(found: DataArrays, expected: official.Arrays) -> None:
    """The same labelled images in each split, in whatever order, and the same classes."""
    assert found.classes == expected["class_names"].tolist()
    for split in ("train", "test"):
        images, labels = getattr(found, f"{split}_images"), getattr(found, f"{split}_labels")
        assert images.dtype == np.uint8 and labels.dtype == np.int64
        images, labels = canonical.in_order(images, labels)
        wanted = canonical.in_order(expected[f"x_{split}"], expected[f"y_{split}"])
        assert np.array_equal(images, wanted[0])
        assert np.array_equal(labels, wanted[1])


@pytest.mark.parametrize("name", READERS)
def test_what_was_put_into_the_archive_is_read(unpacked: Unpacked, name: str) -> None:
    arrays = official.some_arrays(name)
    assert_same(read(name, unpacked(name, arrays)), arrays)


@pytest.mark.parametrize("name", READERS)
def test_images_of_another_size_are_resized_as_torchvision_does(
    unpacked: Unpacked, torchvision: Any, name: str
) -> None:
    side = 64 if name in ("tiny-imagenet", "cub200") else 32  # the others have one size alone
    arrays = official.some_arrays(name, side)
    resize = torchvision.transforms.Resize((24, 24))
    for key in ("x_train", "x_test"):
        arrays[key + "_small"] = np.stack(
            [np.asarray(resize(Image.fromarray(image))) for image in arrays[key]]
        )
    found = read(name, unpacked(name, arrays), size=24)
    small = {"x_train": arrays["x_train_small"], "x_test": arrays["x_test_small"]}
    assert_same(found, arrays | small)


def test_images_that_are_not_square_are_squashed(unpacked: Unpacked, torchvision: Any) -> None:
    folder = unpacked("cub200")
    file = next((folder / "CUB_200_2011" / "images").rglob("bird_0001.jpg"))
    wide = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    official.save_jpeg(file, wide)
    with Image.open(file) as image:
        expected = np.asarray(torchvision.transforms.Resize((32, 32))(image.convert("RGB")))
    found = read("cub200", folder)
    images = np.concatenate([found.train_images, found.test_images])
    assert any(np.array_equal(image, expected) for image in images)


@pytest.mark.parametrize(
    ("name", "pattern"), [("tiny-imagenet", "val_0.JPEG"), ("cub200", "bird_0001.jpg")]
)
def test_grey_images_have_three_equal_channels(unpacked: Unpacked, name: str, pattern: str) -> None:
    folder = unpacked(name)
    grey = official.blocks(1, 32, seed=9)[0, :, :, 0]
    official.save_jpeg(next(folder.rglob(pattern)), grey)
    found = read(name, folder)
    images = np.concatenate([found.train_images, found.test_images])
    assert any(np.array_equal(image, np.stack([grey] * 3, axis=-1)) for image in images)


def test_a_label_of_tiny_imagenet_is_the_rank_of_its_sorted_name(unpacked: Unpacked) -> None:
    folder = unpacked("tiny-imagenet")
    lines = (folder / "tiny-imagenet-200" / "wnids.txt").read_text().split()
    found = read("tiny-imagenet", folder)
    assert found.classes == sorted(lines) != lines


def test_cifar_pickled_by_this_python_is_read_too(unpacked: Unpacked) -> None:
    """Text for keys, NumPy's new module path: what a user's own tools write."""
    arrays = official.some_arrays("cifar100")
    folder = unpacked("cifar100", arrays)
    for split in ("train", "test"):
        rows = arrays[f"x_{split}"].transpose(0, 3, 1, 2).reshape(-1, 3072)
        batch = {"data": rows, "fine_labels": arrays[f"y_{split}"].tolist()}
        content = pickle.dumps(batch, protocol=4)
        assert b"numpy._core.multiarray" in content
        (folder / "cifar-100-python" / split).write_bytes(content)
    assert_same(read("cifar100", folder), arrays)


class Malicious:
    """A pickle of it calls `open(file, "w")`."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.file), "w")


@pytest.mark.parametrize("place", ["batch", "label", "key"])
@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(
    unpacked: Unpacked, tmp_path: Path, place: str, protocol: int
) -> None:
    folder, trace = unpacked("cifar10"), tmp_path / "it ran"
    value: Any = Malicious(trace)
    value = {"batch": value, "label": {"labels": [value]}, "key": {(value,): 0}}[place]
    content = pickle.dumps(value, protocol)
    file = folder / "cifar-10-batches-py" / "data_batch_3"
    file.write_bytes(content)
    with pytest.raises(
        UserError, match=r"data_batch_3 asks for _?io\.open.*twf data fetch cifar10"
    ):
        read("cifar10", folder)
    assert not trace.exists()
    pickle.loads(content).close() if place == "batch" else pickle.loads(content)
    assert trace.exists()  # so that the test above speaks of a real danger


@pytest.mark.parametrize(
    "name", ["builtins.eval", "os.system", "numpy.load", "numpy.core.multiarray.fromfile"]
)
def test_a_class_that_is_not_needed_is_named(unpacked: Unpacked, name: str) -> None:
    folder = unpacked("cifar10")
    module, _, attribute = name.rpartition(".")
    (folder / "cifar-10-batches-py" / "test_batch").write_bytes(
        f"c{module}\n{attribute}\n.".encode()
    )
    with pytest.raises(UserError, match=rf"test_batch asks for {re.escape(name)}, which"):
        read("cifar10", folder)


MEMBERS = {  # what each reader cannot do without
    "cifar10": ["data_batch_1", "data_batch_5", "test_batch", "batches.meta"],
    "cifar100": ["train", "test", "meta"],
    "svhn": ["train_32x32.mat", "test_32x32.mat"],
    "tiny-imagenet": ["wnids.txt", "val_annotations.txt", "val_3.JPEG"],
    "cub200": [
        "images.txt",
        "train_test_split.txt",
        "image_class_labels.txt",
        "classes.txt",
        "bird_0003.jpg",
    ],
}


def member_of(folder: Path, name: str) -> Path:
    (file,) = [f for f in folder.rglob(name) if f.is_file()]
    return file


@pytest.mark.parametrize(
    ("name", "member"), [(name, member) for name in MEMBERS for member in MEMBERS[name]]
)
@pytest.mark.parametrize("harm", ["gone", "torn", "empty"])
def test_a_missing_or_damaged_member_is_named_with_the_remedy(
    unpacked: Unpacked, name: str, member: str, harm: str
) -> None:
    folder = unpacked(name)
    file = member_of(folder, member)
    if harm == "gone":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] if harm == "torn" else b"")
    with pytest.raises(UserError) as caught:
        read(name, folder)
    assert f"fetch the archive again: `twf data fetch {name}`" in str(caught.value)
    # a short table is told by the image that it lacks, or that lacks it
    assert member in str(caught.value) or (harm != "gone" and file.suffix == ".txt")


@pytest.mark.parametrize("name", READERS)
def test_an_empty_folder_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"{re.escape(str(tmp_path))}.*`twf data fetch "):
        read(name, tmp_path)


def test_a_class_without_training_images_is_named(unpacked: Unpacked) -> None:
    folder = unpacked("tiny-imagenet")
    for file in folder.rglob("n01629819_*.JPEG"):
        file.unlink()
    with pytest.raises(UserError, match=r"train/n01629819/images has no image; fetch"):
        read("tiny-imagenet", folder)


def change(file: Path, old: str, new: str) -> None:
    content = file.read_text()
    assert old in content
    file.write_text(content.replace(old, new, 1))


TABLES: dict[str, tuple[str, str, str, str, str]] = {  # archive, file, old, new, what is said
    "no such class": (
        "tiny-imagenet",
        "val_annotations.txt",
        "val_0.JPEG\tn01443537",
        "val_0.JPEG\tn99999999",
        "gives val_0.JPEG the class 'n99999999', which is unknown",
    ),
    "an image twice": (
        "tiny-imagenet",
        "val_annotations.txt",
        "val_0.JPEG",
        "val_1.JPEG",
        "names val_1.JPEG twice",
    ),
    "an image without class": (
        "tiny-imagenet",
        "val_annotations.txt",
        "val_0.JPEG\tn01443537\t0\t32\t44\t62\n",
        "",
        "gives no class to val_0.JPEG",
    ),
    "a class twice": (
        "tiny-imagenet",
        "wnids.txt",
        "n02124075",
        "n04067472",
        "names a class twice",
    ),
    "no split": ("cub200", "train_test_split.txt", "1 1\n", "", "says nothing of image 1 "),
    "no such split": ("cub200", "train_test_split.txt", "1 1\n", "1 2\n", "says 2 of image 1 "),
    "no class": ("cub200", "image_class_labels.txt", "1 1\n", "", "says nothing of image 1 "),
    "a class beyond": ("cub200", "image_class_labels.txt", "1 1\n", "1 4\n", "says 4 of image 1 "),
    "class zero": ("cub200", "image_class_labels.txt", "1 1\n", "1 0\n", "says 0 of image 1 "),
    "no image": ("cub200", "images.txt", "1 001", "77 001", "image 77 "),
    "three words": ("cub200", "images.txt", "/bird_0001", "/a bird_0001", "a line that does not"),
    "twice": ("cub200", "images.txt", "2 001", "1 001", "a line that does not fit: '1 001"),
    "classes from 0": ("cub200", "classes.txt", "1 001", "0 001", "does not count its classes"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_does_not_fit_is_named(unpacked: Unpacked, case: str) -> None:
    name, member, old, new, said = TABLES[case]
    folder = unpacked(name)
    change(member_of(folder, member), old, new)
    with pytest.raises(UserError, match=rf"\.txt .*{re.escape(said)}.*`twf data fetch {name}`"):
        read(name, folder)


ROWS = np.zeros((2, 3072), np.uint8)
BATCHES: dict[str, Any] = {  # what is said, and the batch that it is said of
    "is not a batch": [1, 2],
    "has no array data": {b"labels": [0, 1]},
    r"has data as float64 \[2, 3072\], where uint8 \[N, 3072\] is": {b"data": ROWS.astype(float)},
    r"has data as uint8 \[2, 3071\], where uint8": {b"data": ROWS[:, 1:], b"labels": [0, 1]},
    r"has data as uint8 \[3072\], where uint8": {b"data": ROWS[0], b"labels": [0, 1]},
    "has no labels labels": {b"data": ROWS},
    r"has labels as int64 \[3\], where 2 integers": {b"data": ROWS, b"labels": [0, 1, 2]},
    r"has labels as float64 \[2\], where 2 integers": {b"data": ROWS, b"labels": [0.0, 1.0]},
    r"has labels as float64 \[0\], where 2 integers": {b"data": ROWS, b"labels": [[0], [1, 2]]},
    "has the label 10 in labels, beyond 0 to 9": {b"data": ROWS, b"labels": [0, 10]},
    "has the label -1 in labels, beyond 0 to 9": {b"data": ROWS, b"labels": [0, -1]},
}


@pytest.mark.parametrize("said", BATCHES)
def test_a_batch_of_wrong_content_is_named(unpacked: Unpacked, said: str) -> None:
    folder = unpacked("cifar10")
    file = folder / "cifar-10-batches-py" / "data_batch_2"
    file.write_bytes(official.python2_pickle(BATCHES[said]))
    with pytest.raises(UserError, match=rf"data_batch_2 {said}.*`twf data fetch cifar10`"):
        read("cifar10", folder)


def test_a_wrong_number_of_class_names_is_named(unpacked: Unpacked) -> None:
    folder = unpacked("cifar10")
    meta = official.python2_pickle({b"label_names": [b"cat"] * 9})
    (folder / "cifar-10-batches-py" / "batches.meta").write_bytes(meta)
    with pytest.raises(UserError, match=r"batches\.meta does not name 10 classes"):
        read("cifar10", folder)


X = np.zeros((32, 32, 3, 2), np.uint8)
MATS: dict[str, dict[str, np.ndarray]] = {
    "has no array X": {"y": np.ones(2)},
    "has no labels y": {"X": X},
    r"has X as uint8 \[32, 32, 2, 3\], where uint8 \[32, 32, 3, N\]": {"X": X.swapaxes(2, 3)},
    "has the label 0 in y, beyond 1 to 10": {"X": X, "y": np.array([[0], [1]], np.uint8)},
    "has the label 11 in y, beyond 1 to 10": {"X": X, "y": np.array([[1], [11]], np.uint8)},
    r"has y as uint8 \[1, 3\], where 2 integers": {"X": X, "y": np.ones((1, 3), np.uint8)},
}


@pytest.mark.parametrize("said", MATS)
def test_a_matlab_file_of_wrong_content_is_named(unpacked: Unpacked, said: str) -> None:
    folder = unpacked("svhn")
    savemat(folder / "test_32x32.mat", MATS[said])
    with pytest.raises(UserError, match=rf"test_32x32\.mat {said}.*`twf data fetch svhn`"):
        read("svhn", folder)


def test_an_array_of_the_right_size_is_not_copied() -> None:
    images = official.blocks(3, 32, seed=0)
    assert resize_images(images, 32) is images


def test_reading_images_holds_no_second_copy_of_them(tmp_path: Path, unpacked: Unpacked) -> None:
    """42 MiB of images: besides them one image at a time."""
    arrays = official.some_arrays("cub200", side=16)
    arrays |= {
        k: np.concatenate([arrays[k]] * 12) for k in ("x_train", "y_train", "x_test", "y_test")
    }
    folder = unpacked("cub200", arrays)
    tracemalloc.start()
    try:
        found = read("cub200", folder, size=224)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    total = found.train_images.nbytes + found.test_images.nbytes
    assert total == 12 * 24 * 224 * 224 * 3
    assert total <= peak < 1.1 * total
