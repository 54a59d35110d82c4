"""The registry of official archives, and a lab's own beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from project import PROJECT

from twf import study
from twf.data import registry
from twf.errors import UserError
from twf.study import reading

PAGE = (PROJECT / "docs" / "data.md").read_text(encoding="utf-8")
OWN = PAGE.partition("```yaml\n")[2].partition("```")[0]  # its example: our-birds


@pytest.fixture
def own(tmp_path, monkeypatch):
    """`own(change)` writes a registry of one's own, changed, and has `TWF_REGISTRY` name it."""
    path = tmp_path / "own.yaml"
    monkeypatch.setenv("TWF_REGISTRY", str(path))

    def write(change=lambda values: None) -> Path:
        values = yaml.safe_load(OWN)
        change(values)
        path.write_text(yaml.safe_dump(values))
        return path

    return write


def test_the_packaged_archives_are_complete_and_as_params_yaml_has_them(monkeypatch):
    monkeypatch.delenv("TWF_REGISTRY", raising=False)
    datasets = reading.load(PROJECT / "params.yaml").datasets
    names = ["cifar10", "cifar100", "svhn", "tiny-imagenet", "cub200", "resnet50-imagenet"]
    assert list(registry.load()) == names
    for name, entry in registry.load().items():
        for file in entry.files.values():
            assert file.size and (file.md5 or file.sha256) and file.addresses
        if entry.kind == "images":
            assert (entry.classes, entry.size) == (datasets[name].classes, datasets[name].size)


def test_a_study_needs_its_benchmarks_data_its_sources_data_and_their_weights(monkeypatch):
    monkeypatch.delenv("TWF_REGISTRY", raising=False)
    loaded = reading.load(PROJECT / "params.yaml")
    assert registry.needed(loaded, study.expand(loaded, "paper")) == list(registry.load())
    assert registry.needed(loaded, study.expand(loaded, "demo")) == []
    # the images that weights in git were trained on, only where a method reads them
    experiments = loaded.named_study("overnight-search").experiments
    one = experiments["search"].model_copy(update={"benchmarks": ["split-cifar10"]})
    experiments["search"] = one
    needed = registry.needed(loaded, study.expand(loaded, "overnight-search"))
    assert needed == ["cifar10", "cifar100"]
    del experiments["anchor"]
    assert registry.needed(loaded, study.expand(loaded, "overnight-search")) == ["cifar10"]


def test_a_labs_own_archives_are_added_or_replace_ours_of_that_name(own):
    own()
    entries = registry.load()
    assert list(entries)[-1] == "our-birds" and "cifar10" in entries
    assert entries["our-birds"].fingerprints.train is None
    own(lambda values: values.update(cifar10=values.pop("our-birds")))
    assert registry.entry("cifar10").title == "Our birds"
    assert registry.entry("cifar100").title == "CIFAR-100"


def file_of(values: dict) -> dict:
    return values["our-birds"]["files"]["our-birds.tar.gz"]


def at(address: str) -> Callable[[dict], None]:
    return lambda values: file_of(values).update(addresses=[address])


WRONG: list[tuple[str, Callable[[dict], object]]] = [  # the key that is named, and the change
    ("our-birds.citation:", lambda v: v["our-birds"].pop("citation")),
    ("our-birds: unknown key 'licens'", lambda v: v["our-birds"].update(licens="x")),
    ("our-birds.classes:", lambda v: v["our-birds"].update(classes=0)),
    ("our-birds.images.test:", lambda v: v["our-birds"]["images"].pop("test")),
    ("our-birds.files.our-birds.tar.gz.md5:", lambda v: file_of(v).update(md5="abc")),
    ("our-birds.files.our-birds.tar.gz: give either", lambda v: file_of(v).pop("md5")),
    ("our-birds.files.our-birds.tar.gz: give either", lambda v: file_of(v).update(sha256="0" * 64)),
    ("our-birds.files.our-birds.tar.gz.addresses.0:", at("ftp://a/b")),
    ("our-birds.files.our-birds.tar.gz.addresses.0:", at("http:///b")),
    ("our-birds.files.our-birds.tar.gz.addresses.0:", at("http://[a/b")),
    ("our-birds.files.our-birds.tar.gz.addresses.0:", at("http://a:99999/b")),
    ("our-birds.files.our-birds.tar.gz.addresses.0:", at("https://me:key@host/file?token=key")),
    ("our-birds.files.../birds", lambda v: v["our-birds"].update(files={"../birds": file_of(v)})),
    ("Birds", lambda v: v.update({"Birds/..": v["our-birds"]})),
    ("our-birds: Input tag 'sounds'", lambda v: v["our-birds"].update(kind="sounds")),
]


@pytest.mark.parametrize(("named", "change"), WRONG)
def test_a_mistake_in_it_is_named_with_file_and_key_but_no_password(own, named, change):
    path = own(change)
    with pytest.raises(UserError) as caught:
        registry.load()
    said = str(caught.value)
    assert (
        said.startswith(str(path)) and named in said and "key@" not in said and "=key" not in said
    )


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2", "- a", "", None])
def test_what_is_no_registry_is_named(own, text):
    path = own()
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=str(path)):
        registry.load()


def test_a_file_is_told_by_its_size_and_its_checksum(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    md5, sha256 = hashlib.md5(b"content").hexdigest(), hashlib.sha256(b"content").hexdigest()
    for right in ({"md5": md5}, {"sha256": sha256}, {"sha256": sha256[:8]}):
        assert registry.File(**right).mismatch(path) is None
        assert registry.File(**right, size=7).mismatch(path) is None
        assert registry.File(**right, size=8).mismatch(path) is not None
    for wrong, found in (("md5", md5), ("sha256", sha256)):
        said = registry.File(**{wrong: found[::-1]}).mismatch(path)
        assert said and found in said and found[::-1] in said


def test_images_of_another_size_are_held_to_no_fingerprint():
    entry = registry.load()["tiny-imagenet"]
    assert set(entry.fingerprints_at(entry.size)) == {"train", "test"}
    assert entry.fingerprints_at(2 * entry.size) == {}
