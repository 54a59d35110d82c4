"""What `twf plan` says a study can decide."""

from __future__ import annotations

from twf.files import PARAMS
from twf.results import statistics, status
from twf.results.paper.comparison import MARGIN
from twf.study import reading


def test_the_plan_says_how_many_seeds_its_cells_have_and_what_a_verdict_takes(make_plan, capsys):
    plan = make_plan([0, 1, 2], methods=["er"], buffers=[500])
    found = status.of_plan(reading.load(PARAMS), plan)
    assert found["seeds"] == {3: 2}  # Class-IL and Task-IL
    status.show(found)
    assert "cells by seeds: 2 with 3" in capsys.readouterr().out


def test_the_seeds_that_agreement_takes_are_those_of_the_statistics():
    assert statistics.seeds_needed(1.0, MARGIN) == status.SEEDS_FOR_AGREEMENT
