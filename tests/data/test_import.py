"""Data from NumPy archives and class folders: the same as by the official route, or refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import canonical
import numpy as np
import official
import pytest
from PIL import Image

from twf.data import folders, registry, store
from twf.data.importing import import_file
from twf.errors import UserError

READERS = {
    "cifar10": "cifar",
    "cifar100": "cifar",
    "svhn": "svhn",
    "tiny-imagenet": "tiny_imagenet",
    "cub200": "cub200",
}


def entry_of(arrays: official.Arrays, **changes: Any) -> dict[str, Any]:
    """What a registry says of `arrays`."""
    return {
        "classes": len(arrays["class_names"]),
        "size": arrays["x_train"].shape[1],
        "counts": {split: len(arrays[f"y_{split}"]) for split in ("train", "test")},
        "fingerprints": {
            split: canonical.fingerprint(arrays[f"x_{split}"], arrays[f"y_{split}"])
            for split in ("train", "test")
        },
    } | changes


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "data" / "mine.safetensors"


@pytest.mark.parametrize("name", READERS)
def test_every_route_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    arrays = official.some_arrays(name)
    folder = official.unpack(official.write_archives(name, tmp_path, arrays), tmp_path / "unpacked")
    np.savez(tmp_path / "mine.npz", **arrays)
    official.write_folders(tmp_path / "folders", arrays)
    reader = import_module(f"twf.data.{READERS[name]}")
    store.save(tmp_path / "official.safetensors", name, reader.read(folder, 32))
    for route in ("mine.npz", "folders"):
        output = tmp_path / f"{route}.safetensors"
        import_file(name, tmp_path / route, output, **entry_of(arrays))
        assert output.read_bytes() == (tmp_path / "official.safetensors").read_bytes()


@pytest.mark.parametrize("route", ["npz", "folders"])
def test_images_of_another_size_are_resized_as_torchvision_does(
    tmp_path: Path, output: Path, torchvision: Any, route: str
) -> None:
    large = official.some_arrays("cub200", side=64)
    if route == "npz":
        np.savez(tmp_path / "mine", **large)
    else:
        official.write_folders(tmp_path / "mine", large)
    resize = torchvision.transforms.Resize((32, 32))
    small = large | {
        key: np.stack([np.asarray(resize(Image.fromarray(image))) for image in large[key]])
        for key in ("x_train", "x_test")
    }
    path = tmp_path / ("mine.npz" if route == "npz" else "mine")
    import_file("cub200", path, output, **entry_of(small))  # which compares the fingerprints
    assert store.load(output).train_images.shape[1:] == (32, 32, 3)


def test_known_names_in_another_order_decide_the_labels(tmp_path: Path, output: Path) -> None:
    """`class 10` is sorted before `class 2`."""
    arrays = official.some_arrays("cifar100")
    names = [f"class {i}" for i in range(100)]
    arrays["class_names"] = np.array(names)
    official.write_folders(tmp_path / "folders", arrays)
    sorted_labels = folders.read(tmp_path / "folders", 32)
    assert sorted_labels.classes == sorted(names) != names
    with pytest.raises(UserError, match="classes are in another order"):
        import_file("mine", tmp_path / "folders", output, **entry_of(arrays))
    import_file("mine", tmp_path / "folders", output, **entry_of(arrays), class_names=names)
    assert store.load(output).classes == names


def test_labels_without_names_get_the_known_ones(tmp_path: Path, output: Path) -> None:
    arrays = official.some_arrays("cub200")
    names = arrays["class_names"].tolist()
    np.savez(tmp_path / "mine.npz", **{k: v for k, v in arrays.items() if k != "class_names"})
    import_file("mine", tmp_path / "mine.npz", output, **entry_of(arrays))
    assert store.load(output).classes == ["0", "1", "2"]
    import_file("mine", tmp_path / "mine.npz", output, **entry_of(arrays), class_names=names)
    assert store.load(output).classes == names


def test_unknown_fingerprints_are_not_compared(tmp_path: Path, output: Path) -> None:
    arrays = official.some_arrays("svhn")
    np.savez(tmp_path / "mine.npz", **arrays)
    entry = entry_of(arrays, fingerprints={"train": None, "test": None})
    import_file("svhn", tmp_path / "mine.npz", output, **entry)
    loaded = store.load(output)
    assert loaded.train_fingerprint == canonical.fingerprint(arrays["x_train"], arrays["y_train"])


Spoil = Callable[[official.Arrays], object]


def exchange(arrays: official.Arrays) -> None:
    for letter in ("x", "y"):
        train, test = f"{letter}_train", f"{letter}_test"
        arrays[train], arrays[test] = arrays[test], arrays[train]


def shorten(arrays: official.Arrays, split: str) -> None:
    for letter in ("x", "y"):
        arrays[f"{letter}_{split}"] = arrays[f"{letter}_{split}"][:-2]


def move(arrays: official.Arrays) -> None:
    for letter in ("x", "y"):
        train, test = f"{letter}_train", f"{letter}_test"
        arrays[test] = np.concatenate([arrays[test], arrays[train][:2]])
        arrays[train] = arrays[train][2:]


def double(arrays: official.Arrays) -> None:
    for key in ("x_test", "y_test"):
        arrays[key] = np.concatenate([arrays[key]] * 2)


WRONG: dict[str, Spoil] = {  # what is said, and the change that it is said of
    "has 6 train images, expected 18; training and test images are exchanged": exchange,
    "has 16 train images, expected 18; images are missing": lambda a: shorten(a, "train"),
    "has 4 test images, expected 6; images are missing": lambda a: shorten(a, "test"),
    "has 16 train images, expected 18; the split is not the official": move,
    "has 12 test images, expected 6; it holds images that the official": double,
    "the train images of .* expected .*channels are blue-green-red": lambda a: a.update(
        x_train=a["x_train"][..., ::-1]
    ),
    "the test images of .* expected .*rows and columns are exchanged": lambda a: a.update(
        x_test=a["x_test"].swapaxes(1, 2)
    ),
    "the train images of .* classes are in another order": lambda a: a.update(
        y_train=2 - a["y_train"]
    ),
    "the test images of .* expected .* saved with loss": lambda a: a.update(x_test=a["x_test"] ^ 1),
}


@pytest.mark.parametrize("message", WRONG)
def test_other_data_are_refused_with_the_likely_cause_and_leave_what_was_there(
    tmp_path: Path, output: Path, message: str
) -> None:
    arrays = official.some_arrays("cub200")
    entry = entry_of(arrays)
    np.savez(tmp_path / "good.npz", **arrays)
    import_file("mine", tmp_path / "good.npz", output, **entry)
    good = output.read_bytes()
    WRONG[message](arrays)
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(UserError, match=message) as caught:
        import_file("mine", tmp_path / "mine.npz", output, **entry)
    assert str(tmp_path / "mine.npz") in str(caught.value)
    assert output.read_bytes() == good
    assert list(output.parent.iterdir()) == [output]


def test_another_number_of_classes_is_refused(tmp_path: Path, output: Path) -> None:
    arrays = official.some_arrays("cub200")
    official.write_folders(tmp_path / "mine", arrays)
    with pytest.raises(UserError, match=r"mine has 3 classes, expected 5"):
        import_file("mine", tmp_path / "mine", output, **entry_of(arrays, classes=5))
    assert not output.exists()


# Class folders


def test_val_will_do_for_test_but_not_both(tmp_path: Path) -> None:
    arrays = official.some_arrays("cub200")
    official.write_folders(tmp_path, arrays, test="val")
    assert len(folders.read(tmp_path, 32).test_labels) == 6
    official.write_folders(tmp_path, arrays, test="test")
    with pytest.raises(UserError, match=r"has both test/ and val/"):
        folders.read(tmp_path, 32)


def test_images_of_every_kind_become_rgb_and_hidden_files_are_left_alone(tmp_path: Path) -> None:
    arrays = official.some_arrays("cub200")
    official.write_folders(tmp_path, arrays)
    folder = tmp_path / "train" / str(arrays["class_names"][0])
    colour = Image.fromarray(official.blocks(1, 32, seed=9)[0])
    more = {"grey.png": "L", "palette.gif": "P", "print.jpg": "CMYK", "alpha.webp": "RGBA"}
    (folder / "deeper").mkdir()
    for file, mode in more.items():
        colour.convert(mode).save(folder / "deeper" / file)
    (folder / ".DS_Store").write_bytes(b"no image")
    found = folders.read(tmp_path, 32)
    assert found.train_images.shape == (18 + len(more), 32, 32, 3)
    grey = np.asarray(colour.convert("L").convert("RGB"))
    assert any(np.array_equal(image, grey) for image in found.train_images)


def remove(path: Path) -> None:
    for file in path.rglob("*"):
        if file.is_file():
            file.unlink()


BROKEN: dict[str, Callable[[Path], object]] = {
    r"has no train/CLASS/\*": lambda path: (path / "train").rename(path / "training"),
    r"has no test or val/CLASS/\*": lambda path: (path / "test").rename(path / "testing"),
    r"have different classes, 'extra' is in one alone": lambda p: (p / "test" / "extra").mkdir(),
    r"train/002\.Laysan_Albatross has no image": lambda path: remove(
        path / "train" / "002.Laysan_Albatross"
    ),
    r"notes\.txt cannot be read as an image.*replace it by a good one, or delete": lambda path: (
        path / "train" / "002.Laysan_Albatross" / "notes.txt"
    ).write_text("no image"),
}


@pytest.mark.parametrize("message", BROKEN)
def test_folders_that_do_not_fit_are_named(tmp_path: Path, message: str) -> None:
    official.write_folders(tmp_path, official.some_arrays("cub200"))
    BROKEN[message](tmp_path)
    with pytest.raises(UserError, match=message):
        folders.read(tmp_path, 32)


# The real data, where they are

REAL = {"cifar10": "cifar10", "cifar100": "cifar100", "tiny-imagenet": "tiny-imagenet-32"}


@pytest.fixture
def real_data() -> Path:
    """The folder with cifar10.npz, cifar100.npz and tiny-imagenet-32.npz."""
    folder = os.environ.get("TWF_REAL_DATA")
    if not folder:
        pytest.skip("TWF_REAL_DATA names no folder with cifar10.npz, cifar100.npz, ...")
    return Path(folder)


@pytest.mark.parametrize("name", REAL)
def test_the_real_data_are_imported(real_data: Path, output: Path, name: str) -> None:
    counts, fingerprints, classes = registry.images_entry(name).expected(32)
    assert None not in fingerprints.values()
    import_file(
        name,
        real_data / f"{REAL[name]}.npz",
        output,
        classes=classes,
        size=32,
        counts=counts,
        fingerprints=fingerprints,
    )
    loaded = store.load(output)
    assert loaded.train_images.shape == (counts["train"], 32, 32, 3)
    found = {"train": loaded.train_fingerprint, "test": loaded.test_fingerprint}
    assert found == fingerprints
    output.unlink()
