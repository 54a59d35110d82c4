"""Outputs appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twf import files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_written_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "a" / "b" / "out.txt"
    with files.atomic(path) as partial:
        assert partial.parent == path.parent, "a rename must not cross file systems"
        partial.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(path.parent) == ["out.txt"]


def test_an_old_file_is_replaced_only_at_the_end(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with files.atomic(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail() -> None:
        with files.atomic(path) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.txt"]


def test_an_error_before_anything_is_written_is_the_error_that_shows(tmp_path):
    def fail() -> None:
        with files.atomic(tmp_path / "out.txt"):
            raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"):
        fail()
    assert names(tmp_path) == []


def test_partial_files_are_kept_out_of_git_and_dvc(tmp_path):
    project = Path(__file__).parents[1]
    with files.atomic(tmp_path / "out.txt") as partial:
        assert partial.suffix == ".partial"
        partial.touch()
    for ignore in (".gitignore", ".dvcignore"):
        assert "*.partial" in (project / ignore).read_text().splitlines()


def test_two_processes_do_not_write_into_one_partial_file(tmp_path, monkeypatch):
    with files.atomic(tmp_path / "out.txt") as ours:
        ours.write_text("ours")
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with files.atomic(tmp_path / "out.txt") as theirs:
            theirs.write_text("theirs")
        assert (tmp_path / "out.txt").read_text() == "theirs"
    assert (tmp_path / "out.txt").read_text() == "ours"


def test_names_of_outputs_follow_the_patterns_of_the_rules():
    assert str(files.data_file("digits")) == "data/digits.safetensors"
    assert str(files.checkpoint_file("letters")) == "checkpoints/letters.safetensors"
    assert str(files.record_file("demo", "a.er.50.s0")) == "results/demo/runs/a.er.50.s0.parquet"
    assert str(files.table_file("demo", "main.a", "md")) == "results/demo/tables/main.a.md"
