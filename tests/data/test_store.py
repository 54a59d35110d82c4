"""The file of every data set, its fingerprint, and that a bad file is named."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import official
import pytest
import torch
from safetensors.numpy import load_file, save_file

from twf.data.store import VERSION, DataArrays, Split, load, save
from twf.errors import UserError


@pytest.fixture
def arrays() -> DataArrays:
    generator = np.random.default_rng(0)
    mirrored = generator.integers(0, 256, (12, 5, 5, 3), dtype=np.uint8)[:, :, ::-1]  # a view
    test = generator.integers(0, 256, (6, 5, 5, 3), dtype=np.uint8)
    names = ["one", "zwölf", 'a "quoted" name']
    return DataArrays(Split(mirrored, np.arange(12) % 3), Split(test, np.arange(6) % 3), names)


def test_fingerprint_agrees_with_its_definition(arrays):
    images, labels = arrays.train.images[::2], arrays.train.labels[::2] + 300  # which has two bytes
    assert Split(images, labels).fingerprint == official.fingerprint(images, labels)


def test_what_is_saved_is_loaded(tmp_path, arrays):
    path = tmp_path / "folder" / "toy.safetensors"
    save(path, "toy", arrays, {})
    dataset, by_any_reader = load(path), load_file(path)
    assert dataset.classes == arrays.classes
    assert set(by_any_reader) == {"train_images", "train_labels", "test_images", "test_labels"}
    for name, split in arrays.splits.items():
        assert getattr(dataset, f"{name}_fingerprint") == split.fingerprint
        images, labels = official.in_order(split.images, split.labels)
        for key, expected in {f"{name}_images": images, f"{name}_labels": labels}.items():
            assert torch.equal(getattr(dataset, key), torch.from_numpy(expected))
            assert np.array_equal(by_any_reader[key], expected)
    assert (dataset.train_images.dtype, dataset.train_labels.dtype) == (torch.uint8, torch.int64)


@pytest.mark.parametrize("seed", range(2))
def test_the_bytes_are_kept_in_whatever_order_the_images_come(tmp_path, seed):
    """A change of the format, or of the order, must raise `VERSION`, and then this value."""
    images = np.arange(6 * 5 * 5 * 3).astype(np.uint8).reshape(6, 5, 5, 3)
    labels, order = np.arange(6), np.random.default_rng(seed).permutation(6)
    train = Split(np.asfortranarray(images[order]), labels[order])
    toy = DataArrays(train, Split(images[:2], labels[:2]), list("abcdef"))
    save(tmp_path / "toy.safetensors", "toy", toy, {})
    content = hashlib.sha256((tmp_path / "toy.safetensors").read_bytes()).hexdigest()
    expected = "2a2b1e1bf3d4b77b6dc4124d59054f825a12e89c6fe20f6f7d702b9345f1544a"
    assert (VERSION, content) == ("2", expected)


def changed(key: str) -> Callable[[Path], object]:
    """One value of a tensor becomes another."""

    def change(path: Path) -> None:
        content, tensor = path.read_bytes(), load_file(path)[key].tobytes()
        path.write_bytes(content.replace(tensor, bytes([tensor[0] ^ 1]) + tensor[1:]))

    return change


def torn(kept: float) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])


DAMAGES: list[tuple[Callable[[Path], object], str]] = [  # and what is named
    (Path.unlink, "cannot be read"),
    *((torn(kept), "cannot be read") for kept in (0, 0.01, 0.999)),
    (lambda path: save_file({"train_images": np.zeros(1)}, path), "version none"),
    (lambda p: save_file({"x": np.zeros(1)}, p, {"twf_data_version": "0"}), "version 0"),
    (lambda p: p.write_bytes(p.read_bytes().replace(b"classes", b"klasses")), "cannot be read"),
    *((changed(f"train_{key}"), "its train images") for key in ("images", "labels")),
    *((changed(f"test_{key}"), "its test images") for key in ("images", "labels")),
]


@pytest.mark.parametrize(("damage", "named"), DAMAGES)
def test_a_file_that_is_not_whole_is_named_with_the_remedy(tmp_path, arrays, damage, named):
    path = tmp_path / "toy.safetensors"
    save(path, "toy", arrays, {})
    damage(path)
    with pytest.raises(UserError, match=rf"toy\.safetensors.*{named}.*`twf data prepare toy`"):
        load(path)
