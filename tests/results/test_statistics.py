"""The rules of intervals, against numbers worked by hand and SciPy."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from twf.results import statistics


def by_seed(*values: float) -> pd.Series:
    return pd.Series(values, index=range(len(values)), dtype=float)


def test_a_cell_has_students_interval():
    found = statistics.cell(by_seed(1, 2, 3))
    assert (found.n, found.mean, found.df) == (3, 2, 2)
    assert found.high - 2 == pytest.approx(4.302653 / math.sqrt(3), abs=1e-5)
    assert found.margin_high - 2 == pytest.approx(2.919986 / math.sqrt(3), abs=1e-5)


def test_variants_are_paired_over_the_seeds_that_both_have():
    found = statistics.paired(by_seed(1, 3, 5, 7), by_seed(0, 1, 3))
    assert (found.n, found.df, found.rule) == (3, 2, "paired")
    assert found.mean == pytest.approx(5 / 3)


def test_the_layout_removes_what_a_seed_shifts_in_all_corners():
    """Residuals by hand: 1/2, -1/2, 0 in one corner, and their negatives in the other."""
    corners = pd.DataFrame({"on": [11.5, 20.5, 31], "off": [10.5, 21.5, 31]})
    found = statistics.layout(corners, {"on": 1, "off": -1})
    assert (found.n, found.df) == (3, 2)
    assert found.mean == pytest.approx(0, abs=1e-12)
    error = math.sqrt((4 * 0.5**2 / 2) * 2 / 3)
    assert found.high == pytest.approx(4.302653 * error, abs=1e-5)


@pytest.mark.parametrize("rule", ["cell", "paired", "welch"])
def test_one_seed_has_no_interval_and_no_verdict(rule):
    arms = [by_seed(3)] if rule == "cell" else [by_seed(3), by_seed(1)]
    found = getattr(statistics, rule)(*arms)
    assert math.isnan(found.low) and statistics.verdict(found) == "one seed"


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
    found = statistics.Estimate(3, sum(ends) / 2, "paired", 2, *ends, *margin)
    assert statistics.verdict(found) == verdict


@pytest.mark.parametrize("count", [1, 2, 10])
def test_means_and_intervals_of_groups_are_scipys(count: int):
    """Of one value there is a mean alone."""
    values = np.random.default_rng(count).normal(70, 5, (2, count))
    frame = pd.DataFrame({"cell": np.repeat([0, 1], count), "faa": values.ravel()})
    found = statistics.summary(frame.groupby("cell")["faa"])
    ends = [stats.ttest_1samp(of, 0.0).confidence_interval(0.95) for of in values]
    assert found["mean"].to_numpy() == pytest.approx(values.mean(1))
    spread = values.std(1, ddof=1) if count > 1 else np.full(2, np.nan)
    assert found["sd"].to_numpy() == pytest.approx(spread, nan_ok=True)
    assert found[["low", "high"]].to_numpy() == pytest.approx(np.array(ends), nan_ok=True)


# The least of several means


def estimates(samples: np.ndarray) -> list[statistics.Estimate]:
    """The means of float64 `[mean, seed]`."""
    return [statistics.cell(by_seed(*values)) for values in samples]


def test_the_interval_of_the_least_mean_is_of_students_ends():
    samples = np.array([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
    found, _ = statistics.least(estimates(samples), planned=2)
    assert found.low == pytest.approx(min(each.low for each in estimates(samples)))
    corrected = [  # 97.5 % for each of two, so that both hold in 95 %
        stats.ttest_1samp(values, 0.0).confidence_interval(0.975)[1] for values in samples
    ]
    assert found.high == pytest.approx(min(corrected))
    assert statistics.least(estimates(samples), planned=30)[0].high > found.high


@pytest.mark.parametrize("count", [1, 6, 30])
def test_how_often_the_interval_of_the_least_mean_misses_it(count: int):
    """Where all true means are 0, whether they depend on each other or not."""
    generator = np.random.default_rng(0)
    alone = generator.normal(size=(400, count, 3))
    for draws in (alone, alone + 2 * generator.normal(size=(400, 1, 3))):
        found = [statistics.least(estimates(samples), planned=count)[0] for samples in draws]
        for misses in (sum(of.low > 0 for of in found), sum(of.high < 0 for of in found)):
            assert stats.binomtest(misses, 400, 0.025, alternative="greater").pvalue > 0.01


def test_means_below_zero_are_those_whose_corrected_interval_is():
    samples = np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0], [-3.0, -9.0]])
    found, below = statistics.least(estimates(samples), planned=4)
    assert below == [False, False, True, False] and found.high == -1.0


@pytest.mark.parametrize("counts", [(3, 3), (3, 8), (2, 5)])
def test_a_sum_of_independent_means_is_welchs(counts: tuple[int, int]):
    generator = np.random.default_rng(sum(counts))
    one, other = (by_seed(*generator.normal(70, 1 + 3 * i, n)) for i, n in enumerate(counts))
    found, welch = statistics.welch(one, other), stats.ttest_ind(one, other, equal_var=False)
    assert found.mean == pytest.approx(one.mean() - other.mean())
    assert found.df == pytest.approx(welch.df)
    assert found.low == pytest.approx(welch.confidence_interval(0.95).low)
    assert statistics.total([np.full(2, 70.0)] * 2).mean == 140.0
