"""The registry of official archives, and a lab's own beside it."""

import pytest
import yaml
from support import PROJECT

from twf import study
from twf.data import registry
from twf.errors import UserError
from twf.files import data_file
from twf.study import reading

PAGE = (PROJECT / "docs" / "data.md").read_text(encoding="utf-8")
OWN = yaml.safe_load(PAGE.partition("```yaml\n")[2].partition("```")[0])  # its example: our-birds
PARAMS = reading.load(PROJECT / "params.yaml")


def test_the_packaged_archives_are_as_params_yaml_has_them_and_a_study_needs_those_it_uses(
    tmp_path, monkeypatch
):
    for name, entry in registry.load().items():
        assert all(file.size and file.addresses for file in entry.files.values())
        if entry.kind == "images":
            dataset = PARAMS.datasets[name]
            assert (entry.classes, entry.size) == (dataset.classes, dataset.size)
    monkeypatch.chdir(tmp_path)
    assert registry.needed(PARAMS, study.expand(PARAMS, "paper")) == list(registry.load())
    assert registry.needed(PARAMS, study.expand(PARAMS, "demo")) == []
    # the images that weights in git were trained on are not
    corners = study.expand(PARAMS, "corners")
    assert registry.needed(PARAMS, corners) == ["cifar10"]
    data_file("cifar10").parent.mkdir()
    data_file("cifar10").touch()
    assert registry.needed(PARAMS, corners) == [], "the data are prepared"


@pytest.mark.parametrize(
    ("named", "changes"),
    [
        ("our-birds.citation:", {"citation": None}),
        ("our-birds: unknown key 'licens'", {"licens": "x"}),
        ("our-birds.files.", {"files": {"birds.tar.gz": {"addresses": []}}}),
        ("our-birds.files.", {"files": {"../x": {"checksum": "md5:"}}}),
        ("", "- a"),
        ("", "a: ["),
    ],
)
def test_a_labs_own_archives_are_added_or_refused_by_key(tmp_path, monkeypatch, named, changes):
    own, wrong, birds = tmp_path / "own.yaml", tmp_path / "wrong.yaml", OWN["our-birds"]
    own.write_text(yaml.safe_dump(OWN | {"cifar10": birds}))
    monkeypatch.setenv("TWF_REGISTRY", str(own))
    assert registry.entry("our-birds").fingerprints_at(64) == {}
    titles = [registry.entry(name).title for name in ("cifar10", "cifar100")]
    assert titles == ["Our birds", "CIFAR-100"], "ours is replaced by name"
    monkeypatch.setenv("TWF_REGISTRY", str(wrong))
    whole = not isinstance(changes, str)
    wrong.write_text(yaml.safe_dump({"our-birds": birds | changes}) if whole else changes)
    with pytest.raises(UserError, match=f"{wrong}(.|\n)*{named}"):
        registry.load()
