"""The file form of every data set, its fingerprint, and what is said of a bad file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import canonical
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from twf.data import store
from twf.data.store import VERSION, DataArrays, fingerprint, load, save
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


def test_fingerprint_agrees_with_its_definition(arrays: DataArrays) -> None:
    labels = arrays.train_labels + 300  # so that both bytes of a label count
    assert fingerprint(arrays.train_images, labels) == canonical.fingerprint(
        arrays.train_images, labels
    )


def test_fingerprint_takes_arrays_that_are_not_contiguous(arrays: DataArrays) -> None:
    images, labels = arrays.train_images[::2, ::-1], arrays.train_labels[::2]
    assert fingerprint(images, labels) == canonical.fingerprint(images, labels)


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
    for split in ("train", "test"):
        images, labels = getattr(arrays, f"{split}_images"), getattr(arrays, f"{split}_labels")
        images, labels = canonical.in_order(images, labels)
        assert torch.equal(getattr(dataset, f"{split}_images"), torch.from_numpy(images))
        assert torch.equal(getattr(dataset, f"{split}_labels"), torch.from_numpy(labels))
    assert dataset.train_images.dtype == torch.uint8
    assert dataset.train_labels.dtype == torch.int64
    assert dataset.train_fingerprint == fingerprint(arrays.train_images, arrays.train_labels)
    assert dataset.test_fingerprint == fingerprint(arrays.test_images, arrays.test_labels)


def test_any_safetensors_reader_can_read_it(tmp_path: Path, arrays: DataArrays) -> None:
    save(tmp_path / "toy.safetensors", "toy", arrays)
    tensors = load_file(tmp_path / "toy.safetensors")
    assert set(tensors) == {"train_images", "train_labels", "test_images", "test_labels"}
    images, labels = canonical.in_order(arrays.test_images, arrays.test_labels)
    assert np.array_equal(tensors["test_images"], images)
    assert np.array_equal(tensors["test_labels"], labels)


def shuffled(arrays: DataArrays, seed: int) -> DataArrays:
    """The same data in another order, the images in another layout in memory."""
    generator = np.random.default_rng(seed)
    train = generator.permutation(len(arrays.train_labels))
    test = generator.permutation(len(arrays.test_labels))
    return replace(
        arrays,
        train_images=np.asfortranarray(arrays.train_images[train]),
        train_labels=arrays.train_labels[train],
        test_images=arrays.test_images[test],
        test_labels=arrays.test_labels[test],
    )


def test_equal_data_give_equal_bytes_in_whatever_order(tmp_path: Path, arrays: DataArrays) -> None:
    contents = set()
    for i in range(4):
        save(tmp_path / "toy.safetensors", "toy", shuffled(arrays, seed=i))
        contents.add((tmp_path / "toy.safetensors").read_bytes())
    assert len(contents) == 1


def test_the_bytes_of_the_form_are_kept(tmp_path: Path) -> None:
    """A change of the form, or of the order, must raise `VERSION`, and then this value."""
    images = np.arange(6 * 5 * 5 * 3).astype(np.uint8).reshape(6, 5, 5, 3)
    labels = np.arange(6)
    toy = DataArrays(images, labels, images[:2], labels[:2], ["a", "b", "c", "d", "e", "f"])
    save(tmp_path / "toy.safetensors", "toy", toy)
    content = hashlib.sha256((tmp_path / "toy.safetensors").read_bytes()).hexdigest()
    assert (VERSION, content) == (
        "2",
        "5ee8f9d1f2f2c51cade66673e4026406ed4910c42cf84c699c8c1c265a817901",
    )


def test_pieces_of_any_size_give_the_same_bytes(
    tmp_path: Path, arrays: DataArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = set()
    for size in (1, 5 * 5 * 3 + 1, 5 * 5 * 3 * 5, 10**6):  # one image, one, five, all at once
        monkeypatch.setattr(store, "PIECE", size)
        save(tmp_path / "toy.safetensors", "toy", replace(arrays))
        contents.add((tmp_path / "toy.safetensors").read_bytes())
    assert len(contents) == 1


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
arrays = store.DataArrays(images, labels, images[:9], labels[:9], [str(i) for i in range(200)])
held = most()
store.save(path, "large", arrays)
print((most() - held) / images.nbytes)
held = most()
loaded = store.load(path)
print((most() - held) / images.nbytes, len(loaded.train_images))
"""


def test_saving_and_loading_hold_no_second_copy_of_the_images(tmp_path: Path) -> None:
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
    images, _ = canonical.in_order(mirrored.train_images, mirrored.train_labels)
    assert np.array_equal(loaded.numpy(), images)


def test_writing_to_a_loaded_tensor_leaves_the_file_alone(
    tmp_path: Path, arrays: DataArrays
) -> None:
    path = tmp_path / "toy.safetensors"
    save(path, "toy", arrays)
    before = load(path).train_images.clone()
    load(path).train_images.zero_()
    assert torch.equal(load(path).train_images, before)
    assert before.any()


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
        "import sys; from twf.data import archive, cifar, cub200, importing, letters, svhn; "
        "from twf.data import statistics, textures, tiny_imagenet; "
        "sys.exit('torch' in sys.modules)"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
