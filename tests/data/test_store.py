"""The file of every data set, its fingerprint, and that a bad file is named."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace

import canonical
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from twf.data.store import VERSION, DataArrays, Split, load, save
from twf.errors import UserError
from twf.files import header


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
    assert Split(images, labels).fingerprint == canonical.fingerprint(images, labels)
    images, labels = images[::2, ::-1], labels[::2]  # not contiguous
    assert Split(images, labels).fingerprint == canonical.fingerprint(images, labels)


@pytest.mark.parametrize("mirrored", [False, True])
def test_what_is_saved_is_loaded(tmp_path, arrays, mirrored):
    path = tmp_path / "folder" / "toy.safetensors"
    if mirrored:  # a view is saved as what it shows
        mirror = Split(arrays.train.images[:, :, ::-1], arrays.train.labels)
        arrays = replace(arrays, train=mirror)
    save(path, "toy", arrays)
    dataset = load(path)
    assert dataset.classes == arrays.classes
    by_any_reader = load_file(path)
    assert set(by_any_reader) == {"train_images", "train_labels", "test_images", "test_labels"}
    for name, split in arrays.splits.items():
        images, labels = canonical.in_order(split.images, split.labels)
        assert torch.equal(getattr(dataset, f"{name}_images"), torch.from_numpy(images))
        assert torch.equal(getattr(dataset, f"{name}_labels"), torch.from_numpy(labels))
        assert getattr(dataset, f"{name}_fingerprint") == split.fingerprint
        assert np.array_equal(by_any_reader[f"{name}_images"], images)
        assert np.array_equal(by_any_reader[f"{name}_labels"], labels)
    assert dataset.train_images.dtype == torch.uint8
    assert dataset.train_labels.dtype == torch.int64


def test_equal_data_give_equal_bytes_in_whatever_order(tmp_path, arrays):
    contents = set()
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(12)
        train = Split(np.asfortranarray(arrays.train.images[order]), arrays.train.labels[order])
        test = Split(arrays.test.images[order[order < 6]], arrays.test.labels[order[order < 6]])
        save(tmp_path / "toy.safetensors", "toy", DataArrays(train, test, arrays.classes))
        contents.add((tmp_path / "toy.safetensors").read_bytes())
    assert len(contents) == 1


def test_the_bytes_of_the_format_are_kept(tmp_path):
    """A change of the format, or of the order, must raise `VERSION`, and then this value."""
    images = np.arange(6 * 5 * 5 * 3).astype(np.uint8).reshape(6, 5, 5, 3)
    labels = np.arange(6)
    toy = DataArrays(Split(images, labels), Split(images[:2], labels[:2]), list("abcdef"))
    save(tmp_path / "toy.safetensors", "toy", toy)
    content = hashlib.sha256((tmp_path / "toy.safetensors").read_bytes()).hexdigest()
    assert (VERSION, content) == (
        "2",
        "5ee8f9d1f2f2c51cade66673e4026406ed4910c42cf84c699c8c1c265a817901",
    )


PEAK = """
import sys
from pathlib import Path
import numpy as np
import torch
from twf.data import store

def most() -> int:  # the most memory that this process held so far, in bytes
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

path = Path(sys.argv[1])
images = np.ones((2000, 224, 224, 3), np.uint8)
labels = np.arange(2000) % 200
images[:, 0, 0, 0] = labels
splits = store.Split(images, labels), store.Split(images[:9], labels[:9])
arrays = store.DataArrays(*splits, [str(i) for i in range(200)])
held = most()
store.save(path, "large", arrays)
print((most() - held) / images.nbytes)
held = most()
loaded = store.load(path)
print((most() - held) / images.nbytes, len(loaded.train_images))
"""


@pytest.mark.slow
def test_saving_and_loading_hold_no_second_copy_of_the_images(tmp_path):
    """287 MiB of images; each step may take a tenth of it."""
    path = tmp_path / "large.safetensors"
    words = [sys.executable, "-c", PEAK, str(path)]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    said = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    saving, loading, count = map(float, said.stdout.split())
    path.unlink()
    assert count == 2000
    assert saving < 0.1
    assert loading < 0.1


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


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("part", ["images", "labels"])
def test_a_changed_byte_of_the_data_names_the_remedy(tmp_path, arrays, split, part):
    path = tmp_path / "toy.safetensors"
    save(path, "toy", arrays)
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    first, _ = header(path)[f"{split}_{part}"]["data_offsets"]
    content[start + first] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"damaged: its {split} images.*`twf data prepare toy`"):
        load(path)
