"""DVC's stages start Snakemake only where something changed since it made their outputs."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from twf.engines import made

PATHS = ("params.yaml", "a.parquet", "b.parquet", "not-there.yaml")


@pytest.fixture(autouse=True)
def _noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in PATHS[:3]:
        Path(name).write_text("as made")
    made.note(PATHS)


def test_what_was_made_is_made_while_nothing_changes() -> None:
    assert made.is_made(["a.parquet"])
    assert made.is_made(["a.parquet", "b.parquet"])
    assert not made.is_made(["a.parquet", "c.parquet"])
    assert not made.is_made(["not-there.yaml"])


def newer(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def longer(path: Path) -> None:
    time = path.stat().st_mtime_ns
    path.write_text("as made, and more")
    os.utime(path, ns=(time, time))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *product(PATHS[:3], [longer, Path.unlink]),
        *product(PATHS[1:3], [newer]),
        ("not-there.yaml", Path.touch),
    ],
)
def test_any_change_has_snakemake_look_again(name: str, change) -> None:
    change(Path(name))
    assert not made.is_made(["a.parquet"])


def test_a_change_of_the_parameters_that_is_taken_back_is_none() -> None:
    longer(Path("params.yaml"))
    Path("params.yaml").write_text("as made")
    newer(Path("params.yaml"))
    assert made.is_made(["a.parquet"])


def test_a_later_call_for_less_keeps_the_note_of_what_has_not_changed() -> None:
    made.note(["b.parquet"])
    assert made.is_made(["a.parquet", "b.parquet"])
    longer(Path("params.yaml"))
    made.note(["b.parquet"])
    assert made.is_made(["b.parquet"])
    assert not made.is_made(["a.parquet"])


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_without_a_whole_note_snakemake_looks(text: str | None) -> None:
    made.NOTE.unlink()
    if text is not None:
        made.NOTE.write_text(text)
    assert not made.is_made(["a.parquet"])
