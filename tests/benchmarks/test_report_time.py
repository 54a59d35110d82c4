"""Times of what follows the runs: as many synthetic records as asked for, through every stage."""

from __future__ import annotations

import pytest
from benchmarks import report_time
from commands import publish_nothing
from project import PROJECT

from twf import files
from twf.results import figures, record
from twf.study import expand, reading
from twf.study.params import Params


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """One kind of figure is enough here."""
    monkeypatch.setattr(figures.kinds, "KINDS", {"matrix": figures.KINDS["matrix"]})


def test_there_are_as_many_runs_as_asked_for():
    loaded = reading.load(PROJECT / files.PARAMS)
    alone = len(expand(report_time.with_seeds(loaded, "demo", 1), "demo").runs)
    more = report_time.with_seeds(loaded, "demo", alone + 1)
    assert len(expand(more, "demo").runs) == 2 * alone


def test_the_command_times_every_stage_of_finished_runs_of_the_plan(
    tiny_project, capsys, monkeypatch
):
    publish_nothing()
    measured = {}

    def read(params: Params, study: str) -> str:
        printed = measure(params, study)
        collected = record.read_collected("tiny", history=True).to_pylist()
        measured.update({row["run"]: (row["digest"], len(row["history"])) for row in collected})
        return printed + files.report_file("tiny").read_text()

    measure = report_time.measure
    monkeypatch.setattr(report_time, "measure", read)
    report_time.main("tiny", records=1, project=tiny_project)
    planned = expand(reading.load(files.PARAMS), "tiny").runs
    assert {run: digest for run, (digest, _) in measured.items()} == {
        name: run.digest for name, run in planned.items()
    }
    assert measured["split-target.er.16.s0"][1] == 4  # two epochs of two tasks
    said = capsys.readouterr().out
    assert f"{len(planned)} planned: {len(planned)} finished" in said
    rows = [line.split(" | ")[0].strip("| ") for line in said.splitlines()]
    assert rows[0] == f"{len(planned)} records of tiny"
    stages = ["collect", "table", "compare", "figures", "report", "together"]
    assert rows[2:8] == stages
