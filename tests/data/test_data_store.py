"""The file form of every data set, its fingerprint, and what is said of a bad file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from twf.data.store import DataArrays, fingerprint, load, save
from twf.errors import UserError


@pytest.fixture
def arrays() -> DataArrays:
    generator = np.random.default_rng(0)
    return DataArrays(
        train_images=generator.integers(0, 256, (12, 5, 5, 3), dtype=np.uint8),
        train_labels=np.arange(12) % 3,
        test_images=generator.integers(0, 256, (6, 5, 5, 3), dtype=np.uint8),
        test_labels=np.arange(6) % 3,
        classes=["one", "zwölf", 'a "quoted" name'],
    )


def slow_fingerprint(images: np.ndarray, labels: np.ndarray) -> str:
    digests = []
    for image, label in zip(images.tolist(), labels.tolist(), strict=True):
        content = [label % 256, label // 256]
        for row in image:
            for pixel in row:
                content += pixel
        digests.append(hashlib.sha256(bytes(content)).digest())
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def test_fingerprint_agrees_with_its_definition(arrays: DataArrays) -> None:
    labels = arrays.train_labels + 300  # so that both bytes of a label count
    assert fingerprint(arrays.train_images, labels) == slow_fingerprint(arrays.train_images, labels)


def test_fingerprint_takes_arrays_that_are_not_contiguous(arrays: DataArrays) -> None:
    images, labels = arrays.train_images[::2, ::-1], arrays.train_labels[::2]
    assert fingerprint(images, labels) == slow_fingerprint(images, labels)


def test_fingerprint_does_not_depend_on_order(arrays: DataArrays) -> None:
    order = np.random.default_rng(1).permutation(12)
    assert fingerprint(arrays.train_images[order], arrays.train_labels[order]) == fingerprint(
        arrays.train_images, arrays.train_labels
    )


def test_fingerprint_changes_with_a_pixel_a_label_or_a_pairing(arrays: DataArrays) -> None:
    images, labels = arrays.train_images, arrays.train_labels
    changed = images.copy()
    changed[3, 2, 1, 0] ^= 1
    relabelled = labels.copy()
    relabelled[3] = 1
    prints = {
        fingerprint(images, labels),
        fingerprint(changed, labels),
        fingerprint(images, relabelled),
        fingerprint(images, np.roll(labels, 1)),
        fingerprint(images[1:], labels[1:]),
    }
    assert len(prints) == 5


def test_what_is_saved_is_loaded(tmp_path: Path, arrays: DataArrays) -> None:
    path = tmp_path / "folder" / "toy.safetensors"
    save(path, "toy", arrays)
    dataset = load(path)
    assert dataset.name == "toy"
    assert dataset.classes == arrays.classes
    for key in ("train_images", "train_labels", "test_images", "test_labels"):
        expected = torch.from_numpy(getattr(arrays, key))
        assert torch.equal(getattr(dataset, key), expected)
        assert getattr(dataset, key).dtype == expected.dtype
    assert dataset.train_fingerprint == fingerprint(arrays.train_images, arrays.train_labels)
    assert dataset.test_fingerprint == fingerprint(arrays.test_images, arrays.test_labels)


def test_any_safetensors_reader_can_read_it(tmp_path: Path, arrays: DataArrays) -> None:
    save(tmp_path / "toy.safetensors", "toy", arrays)
    tensors = load_file(tmp_path / "toy.safetensors")
    assert set(tensors) == {"train_images", "train_labels", "test_images", "test_labels"}
    assert np.array_equal(tensors["test_images"], arrays.test_images)


def test_equal_data_give_equal_bytes(tmp_path: Path, arrays: DataArrays) -> None:
    contents = set()
    for i in range(8):  # safetensors alone shuffles its metadata
        save(tmp_path / f"{i}.safetensors", "toy", arrays)
        contents.add((tmp_path / f"{i}.safetensors").read_bytes())
    assert len(contents) == 1


def test_a_saved_file_has_the_permissions_of_any_new_file(
    tmp_path: Path, arrays: DataArrays
) -> None:
    save(tmp_path / "toy.safetensors", "toy", arrays)
    (tmp_path / "new").touch()
    assert (tmp_path / "toy.safetensors").stat().st_mode == (tmp_path / "new").stat().st_mode


def test_a_view_is_saved_as_what_it_shows(tmp_path: Path, arrays: DataArrays) -> None:
    mirrored = replace(arrays, train_images=arrays.train_images[:, :, ::-1])
    save(tmp_path / "toy.safetensors", "toy", mirrored)
    loaded = load(tmp_path / "toy.safetensors").train_images
    assert np.array_equal(loaded.numpy(), mirrored.train_images)


def test_writing_to_a_loaded_tensor_leaves_the_file_alone(
    tmp_path: Path, arrays: DataArrays
) -> None:
    path = tmp_path / "toy.safetensors"
    save(path, "toy", arrays)
    load(path).train_images.zero_()
    assert np.array_equal(load(path).train_images.numpy(), arrays.train_images)


def test_a_missing_file_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cifar10\.safetensors.*twf data prepare cifar10"):
        load(tmp_path / "cifar10.safetensors")


@pytest.mark.parametrize("kept", [0, 5, 100, 0.5, 0.999])
def test_a_torn_file_names_the_remedy(tmp_path: Path, arrays: DataArrays, kept: float) -> None:
    path = tmp_path / "toy.safetensors"
    save(path, "toy", arrays)
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(UserError, match=r"toy\.safetensors cannot be read.*twf data prepare toy"):
        load(path)


@pytest.mark.parametrize("metadata", [None, {"twf_data_version": "0"}])
def test_another_version_names_the_remedy(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "toy.safetensors"
    save_file({"train_images": np.zeros(1)}, path, metadata)
    with pytest.raises(UserError, match=r"toy\.safetensors has data version.*twf data prepare toy"):
        load(path)


def test_preparing_does_not_import_torch() -> None:
    code = (
        "import sys, twf.data, twf.data.archive, twf.data.letters, twf.data.textures; "
        "sys.exit('torch' in sys.modules)"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
