"""Statistics of a cell and of differences, against numbers worked by hand and SciPy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from twf.results import statistics


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 10])
def test_means_and_intervals_of_groups_are_scipys(count: int):
    values = np.random.default_rng(count).normal(70, 5, (2, count))
    frame = pd.DataFrame({"cell": np.repeat([0, 1], count), "faa": values.ravel()})
    found = statistics.summary(frame.groupby("cell")["faa"], "faa")
    ends = [stats.ttest_1samp(of, 0.0).confidence_interval(0.95) for of in values]
    assert found["faa_mean"].to_numpy() == pytest.approx(values.mean(1))
    assert found["faa_std"].to_numpy() == pytest.approx(values.std(1, ddof=1))
    assert found[["faa_low", "faa_high"]].to_numpy() == pytest.approx(np.array(ends))
    assert statistics.student_interval(values[0].tolist()) == pytest.approx(tuple(ends[0]))


def test_too_few_values_have_no_spread_and_nulls_are_no_values():
    frame = pd.DataFrame({"cell": [0, 1, 1, 2], "ff": [70.0, 70.0, None, None]})
    found = statistics.summary(frame.groupby("cell")["ff"], "ff")
    assert found["ff_mean"].tolist() == pytest.approx([70.0, 70.0, np.nan], nan_ok=True)
    assert found[["ff_std", "ff_low", "ff_high"]].isna().all(axis=None)
    assert statistics.student_interval([70.0]) is None


def test_values_that_are_all_alike_have_an_interval_of_no_width():
    assert statistics.student_interval([70.0, 70.0]) == (70.0, 70.0)


def test_the_interval_of_the_least_mean_is_of_students_ends():
    differences = np.array([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
    found = statistics.student(differences)
    low, high = statistics.interval_of_minimum(found, planned=2)
    ends = [statistics.student_interval(list(values)) for values in differences]
    assert low == pytest.approx(min(end[0] for end in ends if end))
    corrected = [  # 97.5 % for each of two, so that both hold in 95 %
        stats.ttest_1samp(values, 0.0).confidence_interval(0.975)[1] for values in differences
    ]
    assert high == pytest.approx(min(corrected))
    assert statistics.interval_of_minimum(found, planned=30)[1] > high


@pytest.mark.parametrize("count", [1, 6, 30])
def test_how_often_the_interval_of_the_least_mean_holds_it(count: int):
    """Where all true means are 0, whether they depend on each other or not."""
    generator = np.random.default_rng(0)
    alone = generator.normal(size=(4000, count, 3))
    together = alone + 2 * generator.normal(size=(4000, 1, 3))
    for draws in (alone, together):
        low, high = statistics.interval_of_minimum(statistics.student(draws), planned=count)
        assert np.mean(low > 0) <= 0.03
        assert np.mean(high < 0) <= 0.03


def named(differences: np.ndarray, planned: int) -> list[bool]:
    """Holm's procedure as its paper has it: p values in order, until one is not significant."""
    p_values = stats.ttest_1samp(differences, 0.0, axis=-1, alternative="less").pvalue
    found = [False] * len(differences)
    for step, i in enumerate(np.argsort(p_values)):
        if p_values[i] >= 0.025 / (planned - step):
            break
        found[i] = True
    return found


@pytest.mark.parametrize("planned", [6, 9])
def test_means_below_zero_are_those_of_holms_procedure(planned: int):
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(300, 6, 3)) - np.arange(6)[:, None]
    estimates = statistics.student(draws)
    found = statistics.below_zero(estimates, planned)
    assert found.tolist() == [named(differences, planned) for differences in draws]
    some = statistics.interval_of_minimum(estimates, planned)[1] < 0
    assert found.any(-1).tolist() == some.tolist()  # it names where it does not hold, and no other
    assert (found.sum(-1) > 1).any() and (~some).any()


def test_differences_without_spread_are_below_zero_or_not():
    differences = np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]])
    found = statistics.below_zero(statistics.student(differences), planned=3)
    assert found.tolist() == [False, False, True]


@pytest.mark.parametrize("counts", [(3, 3), (3, 8), (2, 5)])
def test_a_sum_of_independent_means_is_welchs(counts: tuple[int, int]):
    generator = np.random.default_rng(sum(counts))
    one, other = (generator.normal(70, 1 + 3 * i, n) for i, n in enumerate(counts))
    found = statistics.total([statistics.student(one), statistics.student(-other)])
    welch = stats.ttest_ind(one, other, equal_var=False)
    assert found.freedom == pytest.approx(welch.df)
    assert found.ends() == pytest.approx(tuple(welch.confidence_interval(0.95)))
    assert found.ends(0.9) == pytest.approx(tuple(welch.confidence_interval(0.9)))


def test_a_sum_of_means_without_spread_has_no_width():
    alike = statistics.student([70.0, 70.0])
    assert statistics.total([alike, alike]).ends() == (140.0, 140.0)


@pytest.mark.parametrize("count", [3, 5, 10])
def test_how_often_equivalence_is_found(count: int):
    """By simulation: Student's interval within a margin of 1 of the true mean, at deviation 1."""
    draws = np.random.default_rng(count).normal(size=(4000, count)).tolist()
    ends = [statistics.student_interval(values) or (-9.0, 9.0) for values in draws]
    found = np.mean([low >= -1 and high <= 1 for low, high in ends])
    assert statistics.chance_within(count, 1.0, 1.0) == pytest.approx(found, abs=0.03)


def test_seeds_needed_are_the_first_that_reach_the_power():
    needed = statistics.seeds_needed(1.0, 1.0)
    assert statistics.chance_within(needed, 1.0, 1.0) >= 0.8
    assert statistics.chance_within(needed - 1, 1.0, 1.0) < 0.8
    assert statistics.seeds_needed(0.0, 1.0) == 2
