"""Which interval a difference between cells has."""

from __future__ import annotations

import pytest
from project import PROJECT

from twf.results import contrasts
from twf.results.paper import gains
from twf.results.printed import CellKey
from twf.study import expand, reading

ONE = CellKey("split-cifar10", "cifar100", "twf", "", 500, "class-il")
VALUES = {0: 70.0, 1: 72.0, 2: 77.0}
SHIFTED = {seed: value - 1 for seed, value in VALUES.items()}


@pytest.mark.parametrize("name", ["variant", "protocol"])
def test_what_a_seed_has_in_common_is_subtracted_by_seed(name):
    other = ONE._replace(**{name: "another"})
    found = contrasts.difference({ONE: VALUES, other: SHIFTED}, ONE, other)
    assert (found.n, found.mean, found.error, found.freedom) == (3, 1.0, 0.0, 2.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("method", "er"), ("buffer", 5120), ("benchmark", "another"), ("source", "another")],
)
def test_runs_that_differ_in_more_are_independent(name, value):
    other = ONE._replace(**{name: value})
    found = contrasts.difference({ONE: VALUES, other: SHIFTED}, ONE, other)
    assert (found.n, found.mean, found.freedom) == (3, 1.0, pytest.approx(4.0))
    assert found.low < 0 < found.high


@pytest.mark.parametrize(("table", "interval"), [("main", "Welch's"), ("ablation", "Student's")])
def test_a_tables_gains_say_whose_interval_stands_beside_them(table, interval):
    plan = expand(reading.load(PROJECT / "params.yaml"), "overnight")
    assert gains.model(plan.tables[f"{table}.split-cifar10"]).startswith(interval)
