"""A published data set from the registry to its file, by every route, and what stops it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from official import CLASSES, some_arrays, write_archives, write_folders

from twf import files
from twf.data import import_data, preflight, prepare, registry, store
from twf.data.fetch import fetch
from twf.errors import UserError
from twf.study import params

FORMATS = {"cifar10": "cifar", "cifar100": "cifar"} | {
    name: name for name in ("svhn", "tiny-imagenet", "cub200")
}
Describe = Callable[..., params.OfficialData]


@pytest.fixture
def describe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Describe:
    """`describe(name)`: archives of a small data set, a registry that knows them, and its entry
    in params.yaml. Keywords change the registry's entry."""
    monkeypatch.chdir(tmp_path)

    def make(name: str, **changes: Any) -> params.OfficialData:
        arrays = some_arrays(name)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        entry = {
            "title": f"Small {name}",
            "kind": "images",
            "format": FORMATS[name],
            "homepage": "https://small.example",
            "licence": "none",
            "citation": "none",
            "classes": CLASSES[name],
            "images": {"train": len(arrays["y_train"]), "test": len(arrays["y_test"])},
            "size": 32,
            "fingerprints": {
                split: store.fingerprint(arrays[f"x_{split}"], arrays[f"y_{split}"])
                for split in ("train", "test")
            },
            "files": {
                path.name: {
                    "md5": hashlib.md5(path.read_bytes()).hexdigest(),
                    "addresses": [path.as_uri()],
                }
                for path in write_archives(name, elsewhere, arrays)
            },
        }
        Path("own.yaml").write_text(yaml.safe_dump({name: entry | changes}))
        monkeypatch.setenv("TWF_REGISTRY", str(tmp_path / "own.yaml"))
        return params.OfficialData(
            title=name,
            reader="official",
            archive=name,
            classes=CLASSES[name],
            size=32,
            augmentation=params.Augmentation(mean=[0.5] * 3, std=[0.5] * 3),
        )

    return make


def made(name: str) -> bytes:
    return files.data_file(name).read_bytes()


@pytest.mark.parametrize("name", FORMATS)
def test_archive_arrays_and_folders_give_the_same_file(describe, name):
    dataset = describe(name)
    preflight.data(name, dataset)
    fetch(name, registry.entry(name))
    preflight.data(name, dataset)
    prepare(name, dataset, files.data_file(name))
    preflight.data(name, dataset)
    official = made(name)
    loaded = store.load(files.data_file(name))
    arrays = some_arrays(name)
    assert loaded.train_fingerprint == store.fingerprint(arrays["x_train"], arrays["y_train"])
    assert loaded.classes == arrays["class_names"].tolist()
    assert not any(files.ARCHIVES.glob(".extracted/*[!k]")), "unpacked archives are removed"

    np.savez("mine.npz", **arrays)
    write_folders(Path("mine"), arrays)
    for mine in ("mine.npz", "mine"):
        files.data_file(name).unlink()
        files.receipt_file(name).unlink()
        import_data(name, dataset, Path(mine))
        assert made(name) == official
        assert mine in files.receipt_file(name).read_text()


def test_a_labs_own_archive_of_class_folders(tmp_path, describe):
    arrays = some_arrays("cub200")
    dataset = describe("cub200", format="folders")
    write_folders(tmp_path / "packed/birds", arrays)
    file = shutil.make_archive(str(tmp_path / "birds"), "gztar", tmp_path / "packed")
    registered = yaml.safe_load(Path("own.yaml").read_text())
    md5 = hashlib.md5(Path(file).read_bytes()).hexdigest()
    registered["cub200"]["files"] = {
        "birds.tar.gz": {"md5": md5, "addresses": [Path(file).as_uri()]}
    }
    Path("own.yaml").write_text(yaml.safe_dump(registered))
    fetch("cub200", registry.entry("cub200"))
    prepare("cub200", dataset, files.data_file("cub200"))
    loaded = store.load(files.data_file("cub200"))
    assert loaded.classes == arrays["class_names"].tolist()


def test_an_archive_of_other_images_is_refused(describe):
    dataset = describe("cifar10", fingerprints={"train": "0" * 64, "test": None})
    fetch("cifar10", registry.entry("cifar10"))
    with pytest.raises(UserError, match="train images of archives/cifar10 have the fingerprint"):
        prepare("cifar10", dataset, files.data_file("cifar10"))
    assert not files.data_file("cifar10").exists()


def test_a_wrong_import_leaves_what_was_there(describe):
    dataset = describe("cifar10")
    arrays = some_arrays("cifar10")
    np.savez("right.npz", **arrays)
    import_data("cifar10", dataset, Path("right.npz"))
    before = made("cifar10")
    arrays["x_test"][0, 0, 0, 0] ^= 1
    np.savez("wrong.npz", **arrays)
    with pytest.raises(UserError, match=r"the test images of wrong.npz have the fingerprint"):
        import_data("cifar10", dataset, Path("wrong.npz"))
    assert made("cifar10") == before


# What stops a study before its first job


def test_missing_data_that_cannot_be_fetched_are_named_with_what_brings_them(describe):
    dataset = describe("cifar10")
    for archive in Path("elsewhere").iterdir():
        archive.unlink()
    with pytest.raises(UserError) as refused:
        preflight.data("cifar10", dataset)
    said = str(refused.value)
    assert "cannot fetch cifar-10-python.tar.gz of cifar10 from here" in said
    assert "`twf data fetch cifar10`" in said
    assert "`twf data import cifar10 FILE`" in said
    assert "`twf data fetch --study STUDY`" in said


def test_prepared_data_of_other_images_are_refused(describe):
    dataset = describe("cifar10")
    arrays = some_arrays("cifar10")
    arrays["x_train"][0] ^= 1
    other = store.DataArrays(
        arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"], ["a"] * 10
    )
    store.save(files.data_file("cifar10"), "cifar10", other)
    with pytest.raises(UserError, match=r"safetensors is not Small cifar10: its train"):
        preflight.data("cifar10", dataset)


@pytest.mark.parametrize(
    "content", [b"", b"12345678", b"\x10\0\0\0\0\0\0\0{}", b"\2\0\0\0\0\0\0\0{}"]
)
def test_a_prepared_file_that_is_none_is_refused(describe, content):
    dataset = describe("cifar10")
    files.data_file("cifar10").parent.mkdir()
    files.data_file("cifar10").write_bytes(content)
    with pytest.raises(UserError, match="is no prepared data set, or is cut short; delete it"):
        preflight.data("cifar10", dataset)


def test_prepared_data_of_another_size_are_refused(describe):
    dataset = describe("cifar10")
    np.savez("mine.npz", **some_arrays("cifar10"))
    import_data("cifar10", dataset, Path("mine.npz"))
    with pytest.raises(UserError, match="has 10 classes of 32 pixels, params.yaml says 10 of 64"):
        preflight.data("cifar10", dataset.model_copy(update={"size": 64}))


def test_a_users_own_file_that_is_missing_is_named():
    own = params.ArchiveData(
        title="Mine",
        reader="archive",
        file="nowhere/mine.npz",
        classes=2,
        size=16,
        augmentation=params.Augmentation(mean=[0.5] * 3, std=[0.5] * 3),
    )
    with pytest.raises(UserError, match=r"datasets.mine: no nowhere/mine.npz; put it there"):
        preflight.data("mine", own)


def test_weights_that_are_missing_are_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    network = params.Network(architecture="resnet50")
    source = params.Source(network=network, weights="mine.pth")
    with pytest.raises(UserError, match=r"sources.mine: no mine.pth; put it there"):
        preflight.weights("mine", source)
    Path("mine.pth").touch()
    preflight.weights("mine", source)
