"""Times of what follows the runs: as many synthetic records as asked for, through every stage."""

from __future__ import annotations

import contextlib

import pytest
from benchmarks import report_time
from project import PROJECT

from twf import files
from twf.results import figures, record
from twf.study import expand, reading


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """One kind of figure is enough here."""
    monkeypatch.setattr(figures.kinds, "KINDS", {"cost": figures.KINDS["cost"]})


def test_there_are_as_many_runs_as_asked_for():
    loaded = reading.load(PROJECT / files.PARAMS)
    alone = len(expand(report_time.with_seeds(loaded, "demo", 1), "demo").runs)
    more = report_time.with_seeds(loaded, "demo", alone + 1)
    assert len(expand(more, "demo").runs) == 2 * alone


def test_synthetic_records_are_finished_runs_of_the_plan(tmp_path):
    loaded = report_time.with_seeds(reading.load(PROJECT / files.PARAMS), "demo", 1)
    (tmp_path / "results").mkdir()
    (tmp_path / files.PUBLISHED).write_bytes((PROJECT / files.PUBLISHED).read_bytes())
    with contextlib.chdir(tmp_path):
        printed = report_time.measure(loaded, "demo")
        runs = record.read_collected("demo", history=True)
        page = files.report_file("demo").read_text()
    planned = expand(loaded, "demo").runs
    assert {row["run"]: row["digest"] for row in runs.to_pylist()} == {
        name: run.digest for name, run in planned.items()
    }
    lengths = {row["run"]: len(row["history"]) for row in runs.to_pylist()}
    assert lengths["split-digits.er.50.s0"] == 15  # three epochs of five tasks
    assert f"{len(planned)} planned: {len(planned)} finished" in page
    rows = [line.split(" | ")[0].strip("| ") for line in printed.splitlines()[2:-2]]
    assert rows == ["collect", "table", "compare", "figures", "describe", "report", "together"]


def test_the_command_prints_a_table_and_a_size(capsys):
    report_time.main("demo", records=1, project=PROJECT)
    said = capsys.readouterr().out
    assert "records of demo | seconds |" in said
    assert "The report has " in said
