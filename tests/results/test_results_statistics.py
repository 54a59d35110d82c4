"""Statistics of a cell, against numbers worked by hand."""

from __future__ import annotations

import pytest

from twf.results import statistics


def test_mean_and_standard_deviation_of_three() -> None:
    assert statistics.mean([60.0, 70.0, 80.0]) == 70.0
    assert statistics.standard_deviation([60.0, 70.0, 80.0]) == pytest.approx(10.0)  # sqrt(200 / 2)


def test_one_value_has_no_spread() -> None:
    assert statistics.mean([70.0]) == 70.0
    assert statistics.standard_deviation([70.0]) is None


def test_no_value_has_no_mean() -> None:
    assert statistics.mean([]) is None
    assert statistics.standard_deviation([]) is None
