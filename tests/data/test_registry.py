"""The registry of official archives, and a lab's own beside it."""

import pytest
import yaml
from project import PROJECT

from twf import study
from twf.data import registry
from twf.errors import UserError
from twf.files import data_file
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


def test_a_study_needs_its_data_unless_prepared_its_sources_data_and_their_weights(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert registry.needed(PARAMS, study.expand(PARAMS, "paper")) == list(registry.load())
    assert registry.needed(PARAMS, study.expand(PARAMS, "demo")) == []
    # the images that weights in git were trained on are not
    assert registry.needed(PARAMS, study.expand(PARAMS, "corners")) == ["cifar10"]
    data_file("cifar10").parent.mkdir()
    data_file("cifar10").touch()
    assert registry.needed(PARAMS, study.expand(PARAMS, "corners")) == []


@pytest.mark.parametrize(
    ("named", "change"),
    [
        ("our-birds.citation:", lambda birds: birds.pop("citation")),
        ("our-birds: unknown key 'licens'", lambda birds: birds.update(licens="x")),
        ("our-birds.files.", lambda birds: birds["files"]["our-birds.tar.gz"].pop("checksum")),
        ("our-birds.files.", lambda birds: birds.update(files={"../x": {"checksum": "md5:"}})),
    ],
)
def test_a_labs_own_archives_are_added_or_refused_by_key(tmp_path, monkeypatch, named, change):
    own, wrong = tmp_path / "own.yaml", tmp_path / "wrong.yaml"
    values = yaml.safe_load(OWN)
    own.write_text(yaml.safe_dump(values | {"cifar10": values["our-birds"]}))
    monkeypatch.setenv("TWF_REGISTRY", str(own))
    assert registry.entry("our-birds").fingerprints_at(64) == {}
    titles = [registry.entry(name).title for name in ("cifar10", "cifar100")]
    assert titles == ["Our birds", "CIFAR-100"], "ours is replaced by name"
    monkeypatch.setenv("TWF_REGISTRY", str(wrong))
    change(values["our-birds"])
    for text, part in {"a: [": "", "- a": "", yaml.safe_dump(values): named}.items():
        wrong.write_text(text)
        with pytest.raises(UserError, match=f"{wrong}(.|\n)*{part}"):
            registry.load()
