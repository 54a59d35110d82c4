"""A published data set from archives, arrays or class folders gives one file, or is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import official
import pytest
from support import PROJECT

from twf import files
from twf.data import registry, store
from twf.data.fetch import fetch
from twf.data.prepare import import_data, prepare
from twf.errors import UserError
from twf.study import params, products, reading

DATASETS = reading.load(PROJECT / "params.yaml").datasets
Describe = Callable[..., params.OfficialData]
CUB = files.data_file("cub200")


@pytest.fixture
def describe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Describe:
    """`describe(name)`: archives of a small data set, a registry that knows them, and its entry
    in params.yaml. `pack` changes what is in them, and other keywords the registry's entry."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def make(name: str, pack: Callable[[Path], None] = lambda tree: None, **changes: Any) -> Any:
        arrays = official.some_arrays(name)
        archives = official.write_archives(name, tmp_path / "elsewhere", arrays, pack)
        classes = len(arrays["class_names"])
        splits = {s: (arrays[f"x_{s}"], arrays[f"y_{s}"]) for s in ("train", "test")}
        entry = {
            "title": f"Small {name}",
            "images": {split: len(labels) for split, (_, labels) in splits.items()},
            "size": 32,
            "fingerprints": {s: official.fingerprint(*split) for s, split in splits.items()},
        }
        official.register(monkeypatch, name, archives, **entry | changes)
        return DATASETS[name].model_copy(update={"classes": classes, "size": 32})

    return make


def prepared(name: str, dataset: params.OfficialData) -> bytes:
    fetch(name, registry.entry(name))
    prepare(name, dataset, files.data_file(name))
    return files.data_file(name).read_bytes()


@pytest.mark.parametrize("name", official.NAMES)
def test_archive_arrays_and_folders_give_the_same_file(describe, name):
    dataset, arrays = describe(name), official.some_arrays(name)
    content = prepared(name, dataset)
    assert store.load(files.data_file(name)).classes == official.NAMES[name]
    np.savez("mine.npz", **arrays)
    official.write_folders(Path("mine"), arrays)
    for mine in ("mine.npz", "mine"):
        files.data_file(name).unlink()
        import_data(name, dataset, Path(mine))
        assert files.data_file(name).read_bytes() == content


def test_a_folder_that_a_mac_packed_is_read_without_what_is_hidden(describe):
    """With the files that its tar and Finder add to each folder and beside each file."""
    dataset, mine = describe("cub200"), Path("mine")
    official.write_folders(mine, official.some_arrays("cub200"), test="val")
    (mine / "train/.ipynb_checkpoints").mkdir()
    for path in list(mine.rglob("*")):
        for added in (path.with_name(f"._{path.name}"), path.parent / ".DS_Store"):
            added.write_bytes(b"\0\5\x16\7")
    import_data("cub200", dataset, mine)  # compares fingerprints
    assert store.load(CUB).classes == official.NAMES["cub200"]


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
    dataset = describe("cifar10", fingerprints={"train": "0" * 64})
    with pytest.raises(UserError, match=f"train images of archives/cifar10 .*{'0' * 64}"):
        prepared("cifar10", dataset)
    (archive,) = files.archive_folder("cifar10").glob("*.gz")
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(UserError, match=rf"{archive} .*sha256.*`twf data fetch cifar10`"):
        prepare("cifar10", dataset, files.data_file("cifar10"))
    assert not files.data_file("cifar10").exists()


def test_an_import_needs_no_archive_and_other_data_are_refused(describe, capsys):
    dataset, arrays = describe("cub200"), official.some_arrays("cub200")
    with pytest.raises(UserError, match="`twf data import`"):
        prepare("cub200", dataset, CUB)
    np.savez("mine.npz", **arrays)
    import_data("cub200", dataset, Path("mine.npz"))
    message = capsys.readouterr().out
    for part in ("mine.npz", "18 training", "6 test", "Small cub200", "32 pixels: test and train"):
        assert part in message
    assert products.made_data("cub200") == products.data_plan(dataset, {})
    content = CUB.read_bytes()
    for named, changes in {
        "16 train images, expected 18": {k: arrays[k][2:] for k in ("x_train", "y_train")},
        "train images .* fingerprint": {"x_train": arrays["x_train"][..., ::-1]},
        "test images .* fingerprint": {"y_test": 2 - arrays["y_test"]},
    }.items():
        np.savez("wrong.npz", **arrays | changes)
        with pytest.raises(UserError, match=named) as caught:
            import_data("cub200", dataset, Path("wrong.npz"))
        assert "wrong.npz" in str(caught.value)
        assert CUB.read_bytes() == content and list(CUB.parent.iterdir()) == [CUB]
