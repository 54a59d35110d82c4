"""The registry of official archives, and a lab's own beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from project import PROJECT

from twf import study
from twf.data import registry
from twf.errors import UserError
from twf.study import reading

PAGE = (PROJECT / "docs" / "data.md").read_text(encoding="utf-8")
OWN = PAGE.partition("```yaml\n")[2].partition("```")[0]  # its example: our-birds
PARAMS = reading.load(PROJECT / "params.yaml")


def test_the_packaged_archives_are_complete_and_as_params_yaml_has_them():
    names = ["cifar10", "cifar100", "svhn", "tiny-imagenet", "cub200", "resnet50-imagenet"]
    assert list(registry.load()) == names
    for name, entry in registry.load().items():
        assert all(file.size and file.addresses for file in entry.files.values())
        if entry.kind == "images":
            dataset = PARAMS.datasets[name]
            assert (entry.classes, entry.size) == (dataset.classes, dataset.size)


def test_a_study_needs_its_data_its_sources_data_and_their_weights():
    assert registry.needed(PARAMS, study.expand(PARAMS, "paper")) == list(registry.load())
    assert registry.needed(PARAMS, study.expand(PARAMS, "demo")) == []
    # the images that weights in git were trained on are not
    assert registry.needed(PARAMS, study.expand(PARAMS, "corners")) == ["cifar10"]


def file_of(values: dict) -> dict:
    return values["our-birds"]["files"]["our-birds.tar.gz"]


def at(address: str) -> Callable[[dict], None]:
    return lambda values: file_of(values).update(addresses=[address])


WRONG: list[tuple[str, Callable[[dict], object]]] = [  # the key that is named, and the change
    ("our-birds.citation:", lambda v: v["our-birds"].pop("citation")),
    ("our-birds: unknown key 'licens'", lambda v: v["our-birds"].update(licens="x")),
    ("our-birds.files.our-birds.tar.gz.md5:", lambda v: file_of(v).update(md5="abc")),
    ("our-birds.files.our-birds.tar.gz: give either", lambda v: file_of(v).pop("md5")),
    ("our-birds.files.our-birds.tar.gz.addresses.0:", at("ftp://a/b")),
    ("our-birds.files.our-birds.tar.gz.addresses.0:", at("https://me:key@host/file?token=key")),
    ("our-birds.files.../birds", lambda v: v["our-birds"].update(files={"../birds": file_of(v)})),
    ("Birds", lambda v: v.update({"Birds/..": v["our-birds"]})),
]


@pytest.mark.parametrize(("named", "change"), [("", lambda values: None), *WRONG])
def test_a_labs_own_archives_are_added_or_refused_by_key_without_a_password(
    tmp_path, monkeypatch, named, change
):
    path = tmp_path / "own.yaml"
    monkeypatch.setenv("TWF_REGISTRY", str(path))
    for no_registry in ("a: [", "- a", ""):
        path.write_text(no_registry)
        with pytest.raises(UserError, match=str(path)):
            registry.load()
    values = yaml.safe_load(OWN)
    values["cifar10"] = values["our-birds"]
    change(values)
    path.write_text(yaml.safe_dump(values))
    if not named:
        assert registry.entry("our-birds").fingerprints_at(64) == {}
        titles = [registry.entry(name).title for name in ("cifar10", "cifar100")]
        assert titles == ["Our birds", "CIFAR-100"], "ours is replaced by name"
        return
    with pytest.raises(UserError) as caught:
        registry.load()
    message = str(caught.value)
    assert message.startswith(str(path)) and named in message
    assert "key@" not in message and "=key" not in message
