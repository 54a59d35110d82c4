"""The file of every data set, its fingerprint, and that a bad file is named."""

from __future__ import annotations

import hashlib
import tracemalloc
from dataclasses import replace

import canonical
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from twf.data.store import VERSION, DataArrays, Split, load, save
from twf.errors import UserError


@pytest.fixture
def arrays() -> DataArrays:
    generator = np.random.default_rng(0)
    return DataArrays(
        Split(generator.integers(0, 256, (12, 5, 5, 3), dtype=np.uint8), np.arange(12) % 3),
        Split(generator.integers(0, 256, (6, 5, 5, 3), dtype=np.uint8), np.arange(6) % 3),
        ["one", "zwölf", 'a "quoted" name'],
    )


def test_fingerprint_agrees_with_its_definition(arrays):
    images, labels = arrays.train.images, arrays.train.labels + 300  # both bytes of a label count
    images, labels = images[::2, ::-1], labels[::2]  # not contiguous
    assert Split(images, labels).fingerprint == canonical.fingerprint(images, labels)


@pytest.mark.parametrize("mirrored", [False, True])
def test_what_is_saved_is_loaded(tmp_path, arrays, mirrored):
    path = tmp_path / "folder" / "toy.safetensors"
    if mirrored:  # a view is saved as what it shows
        mirror = Split(arrays.train.images[:, :, ::-1], arrays.train.labels)
        arrays = replace(arrays, train=mirror)
    save(path, "toy", arrays)
    dataset, by_any_reader = load(path), load_file(path)
    assert dataset.classes == arrays.classes
    assert set(by_any_reader) == {"train_images", "train_labels", "test_images", "test_labels"}
    for name, split in arrays.splits.items():
        assert getattr(dataset, f"{name}_fingerprint") == split.fingerprint
        images, labels = canonical.in_order(split.images, split.labels)
        for key, expected in {f"{name}_images": images, f"{name}_labels": labels}.items():
            assert torch.equal(getattr(dataset, key), torch.from_numpy(expected))
            assert np.array_equal(by_any_reader[key], expected)
    assert (dataset.train_images.dtype, dataset.train_labels.dtype) == (torch.uint8, torch.int64)


@pytest.mark.parametrize("seed", range(3))
def test_the_bytes_are_kept_in_whatever_order_the_images_come(tmp_path, seed):
    """A change of the format, or of the order, must raise `VERSION`, and then this value."""
    images = np.arange(6 * 5 * 5 * 3).astype(np.uint8).reshape(6, 5, 5, 3)
    labels, order = np.arange(6), np.random.default_rng(seed).permutation(6)
    train = Split(np.asfortranarray(images[order]), labels[order])
    toy = DataArrays(train, Split(images[:2], labels[:2]), list("abcdef"))
    save(tmp_path / "toy.safetensors", "toy", toy)
    content = hashlib.sha256((tmp_path / "toy.safetensors").read_bytes()).hexdigest()
    assert (VERSION, content) == (
        "2",
        "5ee8f9d1f2f2c51cade66673e4026406ed4910c42cf84c699c8c1c265a817901",
    )


def test_saving_and_loading_hold_no_second_copy_of_the_images(tmp_path):
    """29 MiB of images: each step may allocate a tenth of that."""
    images = np.ones((200, 224, 224, 3), np.uint8)
    images[:, 0, 0, 0] = labels = np.arange(200)
    arrays = DataArrays(Split(images, labels), Split(images[:9], labels[:9]), ["a"] * 200)
    for step in (
        lambda: save(tmp_path / "large", "large", arrays),
        lambda: load(tmp_path / "large"),
    ):
        tracemalloc.start()
        step()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 0.1 * images.nbytes


@pytest.mark.parametrize("kept", [None, 0, 5, 100, 0.5, 0.999])
def test_a_missing_or_torn_file_names_the_remedy(tmp_path, arrays, kept):
    path = tmp_path / "toy.safetensors"
    save(path, "toy", arrays)
    content = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(UserError, match=r"toy\.safetensors.*`twf data prepare toy`"):
        load(path)


@pytest.mark.parametrize("metadata", [None, {"twf_data_version": "0"}])
def test_another_version_names_the_remedy(tmp_path, metadata):
    path = tmp_path / "toy.safetensors"
    save_file({"train_images": np.zeros(1)}, path, metadata)
    with pytest.raises(UserError, match=r"toy\.safetensors .*version.*`twf data prepare toy`"):
        load(path)


@pytest.mark.parametrize("key", ["train_images", "train_labels", "test_images", "test_labels"])
def test_a_changed_value_names_the_remedy(tmp_path, arrays, key):
    path = tmp_path / "toy.safetensors"
    save(path, "toy", arrays)
    tensor = load_file(path)[key]
    content, changed = path.read_bytes(), tensor.copy()
    changed.flat[0] ^= 1
    assert content.count(tensor.tobytes()) == 1
    path.write_bytes(content.replace(tensor.tobytes(), changed.tobytes()))
    split = key.partition("_")[0]
    with pytest.raises(UserError, match=rf"damaged: its {split} images.*`twf data prepare toy`"):
        load(path)
