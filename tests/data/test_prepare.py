"""A published data set from archives, arrays or class folders gives one file, or is refused."""

import hashlib
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import official
import pytest
import yaml
from hostile import Malicious
from PIL import Image
from project import PROJECT

from twf import files
from twf.data import registry, store
from twf.data.fetch import fetch
from twf.data.formats import READERS, folders
from twf.data.images import BrokenFileError
from twf.data.prepare import import_data, prepare
from twf.data.store import DataArrays
from twf.errors import UserError
from twf.study import params, products, reading

DATASETS = reading.load(PROJECT / "params.yaml").datasets
Describe = Callable[..., params.OfficialData]
CUB = files.data_file("cub200")


@pytest.fixture
def describe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Describe:
    """`describe(name)`: archives of a small data set, a registry that knows them, and its entry
    in params.yaml. `arrays` are their content; `pack` changes what is in them, and other keywords
    the registry's entry."""
    monkeypatch.chdir(tmp_path)

    def make(
        name: str, arrays: Any = None, pack: Callable[[Path], None] | None = None, **changes: Any
    ) -> Any:
        arrays = arrays or official.some_arrays(name)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        archives = official.write_archives(name, elsewhere, arrays)
        if pack is not None:
            archives = [repacked(archives[0], pack)]
        classes = len(arrays["class_names"])
        splits = {s: (arrays[f"x_{s}"], arrays[f"y_{s}"]) for s in ("train", "test")}
        entry = registry.images_entry(name).model_dump() | {
            "title": f"Small {name}",
            "classes": classes,
            "images": {split: len(labels) for split, (_, labels) in splits.items()},
            "size": 32,
            "fingerprints": {s: official.fingerprint(*split) for s, split in splits.items()},
            "files": {
                path.name: {
                    "checksum": f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
                    "addresses": [path.as_uri()],
                }
                for path in archives
            },
        }
        Path("own.yaml").write_text(yaml.safe_dump({name: entry | changes}))
        monkeypatch.setenv("TWF_REGISTRY", str(tmp_path / "own.yaml"))
        return DATASETS[name].model_copy(update={"classes": classes, "size": 32})

    return make


def repacked(archive: Path, change: Callable[[Path], None]) -> Path:
    """An archive whose unpacked content was changed."""
    tree = archive.parent / "tree"
    shutil.unpack_archive(archive, tree)
    change(tree)
    archive.unlink()
    with tarfile.open(archive.with_name("packed.tgz"), "w:gz") as packed:
        packed.add(tree, ".")
    return archive.with_name("packed.tgz")


def prepared(name: str, dataset: params.OfficialData) -> bytes:
    fetch(name, registry.entry(name))
    prepare(name, dataset, files.data_file(name))
    return files.data_file(name).read_bytes()


@pytest.mark.parametrize("name", official.CLASSES)
def test_archive_arrays_and_folders_give_the_same_file(describe, name):
    dataset, arrays = describe(name), official.some_arrays(name)
    content = prepared(name, dataset)
    assert store.load(files.data_file(name)).classes == arrays["class_names"].tolist()
    np.savez("mine.npz", **arrays)
    official.write_folders(Path("mine"), arrays)
    for mine in ("mine.npz", "mine"):
        files.data_file(name).unlink()
        import_data(name, dataset, Path(mine))
        assert files.data_file(name).read_bytes() == content


def add_hidden_files(tree: Path) -> None:
    """As a Mac's tar and Finder add them, to each folder and beside each file."""
    for path in list(tree.rglob("*")):
        path.with_name(f"._{path.name}").write_bytes(b"\0\5\x16\7")
        beside = tree / "__MACOSX" / path.relative_to(tree).with_name(f"._{path.name}")
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(b"\0\5\x16\7")
        (path.parent / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")


def test_an_archive_of_class_folders_that_a_mac_packed_is_read(describe):
    arrays = official.some_arrays("cub200")

    def pack(tree: Path) -> None:
        shutil.rmtree(tree)
        official.write_folders(tree / "birds", arrays)
        add_hidden_files(tree)

    prepared("cub200", describe("cub200", pack=pack, format="folders"))  # compares fingerprints
    assert store.load(CUB).classes == arrays["class_names"].tolist()


@pytest.mark.parametrize("name", official.FILES)
def test_an_archive_with_another_content_is_named(describe, name):
    def pack(tree: Path) -> None:
        for path in [path for path in tree.rglob("*") if path.is_file()][::2]:
            path.unlink()

    dataset = describe(name, pack=pack)
    with pytest.raises(UserError, match=f"^archives/.*{name}"):
        prepared(name, dataset)
    assert not files.data_file(name).exists()
    assert [path.name for path in files.ARCHIVES.iterdir()] == [name], "nothing unpacked is left"


def test_an_archive_that_was_changed_or_has_other_images_is_refused(describe):
    dataset = describe("cifar10", fingerprints={"train": "0" * 64, "test": None})
    with pytest.raises(UserError, match=f"train images of archives/cifar10 .*{'0' * 64}"):
        prepared("cifar10", dataset)
    (archive,) = files.archive_folder("cifar10").glob("*.gz")
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(UserError, match=rf"{archive} .*sha256.*`twf data fetch cifar10`"):
        prepare("cifar10", dataset, files.data_file("cifar10"))
    assert not files.data_file("cifar10").exists()


# Imports


def test_what_is_imported_is_said_and_the_archive_is_then_not_needed(describe, capsys):
    dataset = describe("cub200")
    with pytest.raises(UserError, match="`twf data import`"):
        prepare("cub200", dataset, CUB)
    np.savez("mine.npz", **official.some_arrays("cub200"))
    import_data("cub200", dataset, Path("mine.npz"))
    message = capsys.readouterr().out
    for part in ("mine.npz", "18 training", "6 test", "Small cub200", "32 pixels: test and train"):
        assert part in message
    assert products.made_data("cub200") == dataset.made_of


CHANGES: dict[str, Callable[[official.Arrays], object]] = {  # what is named
    "16 train images, expected 18": lambda a: a.update(
        x_train=a["x_train"][2:], y_train=a["y_train"][2:]
    ),
    "train images .* fingerprint": lambda a: a.update(x_train=a["x_train"][..., ::-1]),
    "test images .* fingerprint": lambda a: a.update(y_test=2 - a["y_test"]),
}


@pytest.mark.parametrize("named", CHANGES)
def test_other_data_are_refused_and_what_was_there_stays(describe, named):
    dataset, arrays = describe("cub200"), official.some_arrays("cub200")
    np.savez("good.npz", **arrays)
    import_data("cub200", dataset, Path("good.npz"))
    content = CUB.read_bytes()
    CHANGES[named](arrays)
    np.savez("wrong.npz", **arrays)
    with pytest.raises(UserError, match=named) as caught:
        import_data("cub200", dataset, Path("wrong.npz"))
    assert "wrong.npz" in str(caught.value)
    assert CUB.read_bytes() == content and list(CUB.parent.iterdir()) == [CUB]


# Class folders


def test_val_will_do_for_test_and_hidden_folders_are_passed_over(tmp_path):
    arrays = official.some_arrays("cub200")
    official.write_folders(tmp_path / "birds", arrays, test="val")
    (tmp_path / "birds/train/.ipynb_checkpoints").mkdir()
    data = folders(tmp_path, 32)
    assert (len(data.train.labels), len(data.test.labels)) == (18, 6)
    assert data.classes == arrays["class_names"].tolist()


BROKEN: dict[str, Callable[[Path], object]] = {  # what is named
    "train/CLASS": lambda path: (path / "train").rename(path / "training"),
    "test/CLASS.*train": lambda path: shutil.rmtree(path / "test"),
    "same classes: extra": lambda path: (path / "test" / "extra").mkdir(),
    r"notes\.txt cannot be read as an image": lambda path: (
        next(path.glob("train/*")) / "notes.txt"
    ).write_text("no image"),
}


@pytest.mark.parametrize("named", BROKEN)
def test_folders_that_do_not_fit_are_named(tmp_path, named):
    official.write_folders(tmp_path, official.some_arrays("cub200"))
    BROKEN[named](tmp_path)
    with pytest.raises(UserError, match=named):
        folders(tmp_path, 32)


# Readers of unpacked archives

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
        images, labels = official.in_order(split.images, split.labels)
        wanted = official.in_order(expected[f"x_{name}"], expected[f"y_{name}"])
        assert np.array_equal(images, wanted[0]) and np.array_equal(labels, wanted[1])


@pytest.mark.parametrize("name", official.CLASSES)
def test_images_of_another_size_are_resized_as_torchvision_does(unpacked, torchvision, name):
    side = 64 if name in ("tiny-imagenet", "cub200") else 32  # the others have one size only
    arrays = official.some_arrays(name, side)
    folder = unpacked(name, arrays)
    resize = torchvision.transforms.Resize((24, 24))
    for key in ("x_train", "x_test"):
        small = [np.asarray(resize(Image.fromarray(image))) for image in arrays[key]]
        arrays[key] = np.stack(small)
    assert_same(READERS["cifar" if "cifar" in name else name](folder, 24), arrays)


@pytest.mark.parametrize("position", ["batch", "label", "key"])
@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(
    unpacked, tmp_path, position, protocol
):
    folder, trace = unpacked("cifar10"), tmp_path / "trace"
    value: Any = Malicious(trace)
    value = {"batch": value, "label": {"labels": [value]}, "key": {(value,): 0}}[position]
    content = pickle.dumps(value, protocol)
    (folder / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with pytest.raises(BrokenFileError, match=r"data_batch_3 .*io\.open"):
        READERS["cifar"](folder, 32)
    assert not trace.exists()
    pickle.loads(content)
    assert trace.exists()  # so that the test above speaks of a real danger
