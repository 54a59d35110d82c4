"""The registry of official archives, and another one in its place."""

import json

import pytest
import yaml
from safetensors.numpy import save_file
from support import PROJECT

from twf import study
from twf.data import registry
from twf.errors import UserError
from twf.study import reading
from twf.study.products import MADE_OF, Products

PARAMS = reading.load(PROJECT / "params.yaml")


def test_a_study_needs_the_archives_of_its_data_and_weights(tmp_path, monkeypatch):
    for name, entry in registry.load().items():
        assert all(file.addresses for file in entry.files.values())
        assert entry.format is None or entry.size == PARAMS.datasets[name].size
    monkeypatch.chdir(tmp_path)
    assert registry.needed(PARAMS, study.expand(PARAMS, "paper")) == list(registry.load())
    assert registry.needed(PARAMS, study.expand(PARAMS, "demo")) == []
    # the images that weights in git were trained on are not
    corners = study.expand(PARAMS, "corners")
    assert registry.needed(PARAMS, corners) == ["cifar10"]
    made = Products(PARAMS).data("cifar10")
    made.file.parent.mkdir()
    for plan, left in (({}, ["cifar10"]), (made.plan, [])):  # of another plan, and as planned
        save_file({}, made.file, {MADE_OF: json.dumps(plan)})
        assert registry.needed(PARAMS, corners) == left


@pytest.mark.parametrize(
    ("named", "changes"),
    [
        ("cifar10.citation:", {"citation": None}),
        ("cifar10: unknown key 'licens'", {"licens": "x"}),
        ("cifar10.files.", {"files": {"../x": {"checksum": "md5:", "addresses": []}}}),
        ("address", {"files": {"x": {"checksum": "md5:", "addresses": ["https://me:key@host/x"]}}}),
        ("", "- a"),
        ("", "a: ["),
    ],
)
def test_a_labs_own_registry_is_taken_in_place_of_ours_or_refused_by_key(
    tmp_path, monkeypatch, named, changes
):
    path, ours = tmp_path / "own.yaml", registry.entry("cifar10").model_dump()
    monkeypatch.setenv("TWF_REGISTRY", str(path))
    if not isinstance(changes, str):
        path.write_text(yaml.safe_dump({"mine": ours}))
        assert list(registry.load()) == ["mine"]
    whole = yaml.safe_dump({"cifar10": ours | changes}) if isinstance(changes, dict) else changes
    path.write_text(whole)
    registry._read.cache_clear()
    with pytest.raises(UserError, match=f"{path}(.|\n)*{named}"):
        registry.load()
