"""Estimates by hand-made cases: each rule against numbers worked out apart from the code."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from twf.results import estimates


def by_seed(*values: float) -> pd.Series:
    return pd.Series(values, index=range(len(values)), dtype=float)


def test_a_cell_has_students_interval():
    found = estimates.cell(by_seed(1, 2, 3))
    assert (found.n, found.mean, found.df) == (3, 2, 2)
    assert found.high - 2 == pytest.approx(4.302653 / math.sqrt(3), abs=1e-5)
    assert found.margin_high - 2 == pytest.approx(2.919986 / math.sqrt(3), abs=1e-5)


def test_variants_are_paired_over_the_seeds_that_both_have():
    found = estimates.paired(by_seed(1, 3, 5, 7), by_seed(0, 1, 3))
    assert (found.n, found.df, found.rule) == (3, 2, "paired")
    assert found.mean == pytest.approx(5 / 3)


def test_methods_are_compared_by_welch():
    found = estimates.welch(by_seed(10, 12, 14), by_seed(1, 1.1, 1.3))
    variances = 4 / 3, np.var([1, 1.1, 1.3], ddof=1) / 3
    df = sum(variances) ** 2 / sum(v**2 / 2 for v in variances)
    assert found.df == pytest.approx(df)
    assert found.mean == pytest.approx(12 - 3.4 / 3)


def test_the_layout_removes_what_a_seed_shifts_in_all_corners():
    """Residuals by hand: 1/2, -1/2, 0 in one corner, and their negatives in the other."""
    corners = pd.DataFrame({"on": [11.5, 20.5, 31], "off": [10.5, 21.5, 31]})
    found = estimates.layout(corners, {"on": 1, "off": -1})
    assert (found.n, found.df) == (3, 2)
    assert found.mean == pytest.approx(0, abs=1e-12)
    error = math.sqrt((4 * 0.5**2 / 2) * 2 / 3)
    assert found.high == pytest.approx(4.302653 * error, abs=1e-5)


@pytest.mark.parametrize("rule", ["cell", "paired", "welch"])
def test_one_seed_has_no_interval_and_no_verdict(rule):
    arms = [by_seed(3)] if rule == "cell" else [by_seed(3), by_seed(1)]
    found = getattr(estimates, rule)(*arms)
    assert math.isnan(found.low) and estimates.verdict(found) == "one seed"


@pytest.mark.parametrize(
    ("ends", "margin", "verdict"),
    [
        ((-0.5, 0.6), (-0.3, 0.4), "no effect"),
        ((0.1, 0.9), (0.2, 0.8), "an effect, below a point"),
        ((0.1, 3.0), (0.3, 2.8), "an effect"),
        ((-1.1, 3.0), (-0.9, 2.8), "undecided"),
    ],
)
def test_verdicts_are_the_plans(ends, margin, verdict):
    found = estimates.Estimate(3, sum(ends) / 2, "paired", 2, *ends, *margin)
    assert estimates.verdict(found) == verdict
