"""The rules of intervals, against numbers worked by hand and SciPy."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from twf.results import statistics
from twf.results.statistics import of_arms


def arm(*values: float) -> pd.Series:
    return pd.Series(values, dtype=float)


def test_an_interval_is_students_of_the_seeds_that_all_arms_have():
    made = of_arms([arm(1, 2, 3)], "student")
    assert (made.n, made.mean, made.df) == (3, 2, 2)
    assert made.high - 2 == pytest.approx(4.302653 / math.sqrt(3), abs=1e-5)
    assert made.margin_high - 2 == pytest.approx(2.919986 / math.sqrt(3), abs=1e-5)
    made = of_arms([arm(1, 3, 5, 7), arm(0, 1, 3)], "paired")
    assert (made.n, made.df, made.rule) == (3, 2, "paired")
    assert made.mean == pytest.approx(5 / 3)
    four = of_arms([arm(9, 8), arm(1, 2), arm(5, 5), arm(4, 3)], "paired")
    assert (four.n, four.mean) == (2, (8 - 1 + 6 - 2) / 2)


def test_the_layout_removes_what_a_seed_shifts_in_all_corners():
    """Residuals by hand: 1/2, -1/2, 0 in one corner, and their negatives in the other."""
    corners = pd.DataFrame({"on": [11.5, 20.5, 31], "off": [10.5, 21.5, 31]})
    made = statistics.layout(corners, {"on": 1, "off": -1})
    assert (made.n, made.df) == (3, 2)
    assert made.mean == pytest.approx(0, abs=1e-12)
    error = math.sqrt((4 * 0.5**2 / 2) * 2 / 3)
    assert made.high == pytest.approx(4.302653 * error, abs=1e-5)


@pytest.mark.parametrize("rule", ["student", "paired", "welch"])
def test_one_seed_has_no_interval_and_no_verdict(rule):
    made = of_arms([arm(3), arm(1)][: 1 + (rule != "student")], rule)
    assert math.isnan(made.low) and statistics.verdict(made) == "one seed"


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
    made = statistics.Estimate(3, sum(ends) / 2, "paired", 2, *ends, *margin)
    assert statistics.verdict(made) == verdict


@pytest.mark.parametrize("count", [1, 2, 10])
def test_means_and_intervals_of_groups_are_scipys(count: int):
    """Of one value there is a mean alone."""
    values = np.random.default_rng(count).normal(70, 5, (2, count))
    frame = pd.DataFrame({"cell": np.repeat([0, 1], count), "faa": values.ravel()})
    made = statistics.summary(frame.groupby("cell")["faa"])
    ends = [stats.ttest_1samp(each, 0.0).confidence_interval(0.95) for each in values]
    assert made["mean"].to_numpy() == pytest.approx(values.mean(1))
    spread = values.std(1, ddof=1) if count > 1 else np.full(2, np.nan)
    assert made["sd"].to_numpy() == pytest.approx(spread, nan_ok=True)
    assert made[["low", "high"]].to_numpy() == pytest.approx(np.array(ends), nan_ok=True)


@pytest.mark.parametrize("counts", [(3, 3), (3, 8), (2, 5)])
def test_the_difference_of_independent_means_is_welchs(counts: tuple[int, int]):
    generator = np.random.default_rng(sum(counts))
    one, other = (arm(*generator.normal(70, 1 + 3 * i, n)) for i, n in enumerate(counts))
    made, welch = of_arms([one, other], "welch"), stats.ttest_ind(one, other, equal_var=False)
    assert made.mean == pytest.approx(one.mean() - other.mean())
    assert made.df == pytest.approx(welch.df)
    assert made.low == pytest.approx(welch.confidence_interval(0.95).low)


def least(samples: np.ndarray, planned: int) -> tuple[statistics.Estimate, list[bool]]:
    """Of float64 `[mean, seed]`."""
    means = [statistics.total([arm(*each)], "student") for each in samples]
    return statistics.least(means, planned)


def test_the_interval_of_the_least_mean_is_of_students_ends():
    samples = np.array([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
    made, _ = least(samples, planned=2)
    # 97.5 % for each of two, so that both upper ends hold in 95 %
    single, corrected = (
        [stats.ttest_1samp(values, 0.0).confidence_interval(level) for values in samples]
        for level in (0.95, 0.975)
    )
    assert made.low == pytest.approx(min(low for low, _ in single))
    assert made.high == pytest.approx(min(high for _, high in corrected))
    assert least(samples, planned=30)[0].high > made.high


@pytest.mark.parametrize("count", [1, 6, 30])
def test_how_often_the_interval_of_the_least_mean_misses_it(count: int):
    """Where all true means are 0, whether they depend on each other or not."""
    generator = np.random.default_rng(0)
    alone = generator.normal(size=(400, count, 3))
    for draws in (alone, alone + 2 * generator.normal(size=(400, 1, 3))):
        made = [least(samples, planned=count)[0] for samples in draws]
        for misses in (sum(each.low > 0 for each in made), sum(each.high < 0 for each in made)):
            assert stats.binomtest(misses, 400, 0.025, alternative="greater").pvalue > 0.01


def test_means_below_zero_are_those_whose_corrected_interval_is():
    made, below = least(np.array([[0.0] * 2, [1.0] * 2, [-1.0] * 2, [-3.0, -9.0]]), planned=4)
    assert below == [False, False, True, False] and made.high == -1.0


@pytest.mark.parametrize(
    ("shift", "noise", "verdict"),
    [(0.0, 0.3, "one curve"), (2.0, 0.3, "not one curve"), (0.0, 3.0, "undecided")],
)
def test_points_are_one_curve_unless_a_scale_is_shifted(shift, noise, verdict):
    """F beside the residuals of NumPy's least squares; the power beside simulated shifts."""
    random, scale = np.random.default_rng(0), np.repeat([0, 1, 2, 3], [6, 6, 6, 1])
    share = random.uniform(0, 0.2, len(scale))
    gain = 10 * share - 20 * share**2 + shift * (scale == 1) + random.normal(0, noise, len(scale))
    points = pd.DataFrame({"gain": gain, "share": share, "scale": scale.astype(str)})
    made = statistics.one_curve(points)
    assert made.verdict == verdict

    curve = np.column_stack([np.ones_like(share), share, share**2])
    each = np.column_stack([curve, scale[:, None] == [1, 2, 3]])

    def of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # F, and the residual variance
        alone, more = (np.linalg.lstsq(x, values, rcond=None)[1].squeeze() for x in (curve, each))
        return (alone - more) / 3 / (more / 13), more / 13

    f, variance = of(gain)
    assert (made.df, made.residual_df) == (3, 13)
    assert made.f == pytest.approx(float(f)) and made.p == pytest.approx(stats.f.sf(f, 3, 13))
    shifted = 2.0 * (scale[:, None] == [0, 1, 2])  # those of three points or more
    draws = random.normal(0, math.sqrt(variance), (len(scale), 4000))
    chances = [
        (of(part[:, None] + draws)[0] > stats.f.isf(0.05, 3, 13)).mean() for part in shifted.T
    ]
    assert made.power == pytest.approx(min(chances), abs=0.03)
