"""How many images a data set has, before and after it is there."""

from __future__ import annotations

import pytest

from twf import files
from twf.data.counts import count
from twf.data.prepare import prepare
from twf.data.registry import Splits
from twf.study import reading

PROJECT = reading.load(files.PARAMS)  # the tests are called in the project's folder


@pytest.mark.parametrize("name", ["digits", "letters", "textures"])
def test_what_is_told_before_is_what_is_prepared(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = {} if name == "digits" else {"train_per_class": 5, "test_per_class": 2}
    dataset = PROJECT.datasets[name].model_copy(update=few)
    before = count(name, dataset)
    prepare(name, dataset, files.data_file(name))
    after = count(name, dataset)
    assert before.train + before.test == after.train + after.test
    assert abs(before.test - after.test) <= dataset.classes  # digits are split class by class
    assert before == after or name == "digits"


def test_an_official_set_is_as_large_as_the_registry_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset = PROJECT.datasets["cub200"]
    assert count("cub200", dataset) == Splits(train=5994, test=5794)


def test_a_users_archive_is_counted_and_then_what_was_made_of_it(tiny_project, tiny_values):
    dataset = reading.check(tiny_values).datasets["target"]
    assert count("target", dataset) == Splits(train=44, test=16)
    prepare("target", dataset, files.data_file("target"))
    (tiny_project / "archives/target.npz").unlink()
    assert count("target", dataset) == Splits(train=44, test=16)
