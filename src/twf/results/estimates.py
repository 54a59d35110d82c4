"""From values of runs to estimates: means, differences, their intervals and verdicts.

The unit is the seed. One interval per question, by one rule: Student's of a mean; paired by seed
between variants of one method, which share network, order and buffer; Welch's between methods. The
two-way layout is for what docs/plan.md fixed so. A difference is the new thing minus its baseline.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import pandas as pd
from scipy import stats

LEVEL = 0.95
MARGIN = 1.0  # points to each side of 0 that count as no effect

Rule = Literal["student", "paired", "welch", "layout"]


class Estimate(NamedTuple):
    """A mean or a difference in the unit of its values, with its interval; null with one seed."""

    n: int  # seeds; of two methods, the smaller number
    mean: float
    rule: Rule
    df: float = math.nan  # degrees of freedom
    low: float = math.nan  # the ends of the interval of `LEVEL`
    high: float = math.nan
    margin_low: float = math.nan  # the ends of the 90 % interval: two one-sided tests at 5 %
    margin_high: float = math.nan


def cell(values: pd.Series) -> Estimate:
    """The mean of values by seed (float64 `[seeds]`), with Student's interval."""
    return _of_differences(values, "student")


def paired(new: pd.Series, baseline: pd.Series) -> Estimate:
    """The mean difference over the seeds (the index) that both have, with Student's interval."""
    return _of_differences((new - baseline).dropna(), "paired")


def welch(new: pd.Series, baseline: pd.Series) -> Estimate:
    """The difference of two means, with Welch's interval."""
    n, mean = min(len(new), len(baseline)), new.mean() - baseline.mean()
    if n < 2:
        return Estimate(n, mean, "welch")
    test = stats.ttest_ind(new, baseline, equal_var=False)
    (low, high), margin = test.confidence_interval(LEVEL), test.confidence_interval(0.9)
    return Estimate(n, mean, "welch", test.df, low, high, margin.low, margin.high)


def layout(corners: pd.DataFrame, weights: dict[str, float]) -> Estimate:
    """A contrast of corners in a two-way layout without interaction (part one of docs/plan.md).

    `corners` has a row per seed and a column per corner; seeds that lack a corner are left out.
    """
    import statsmodels.formula.api as smf

    complete = corners.dropna()
    n, mean = len(complete), float((complete.mean() * pd.Series(weights)).sum())
    if n < 2:
        return Estimate(n, mean, "layout")
    long = complete.rename_axis("seed").reset_index().melt("seed", var_name="corner")
    fit = smf.ols("value ~ 0 + C(corner) + C(seed)", long).fit()
    contrast = [weights.get(name[len("C(corner)[") : -1], 0.0) for name in fit.params.index]
    test = fit.t_test(contrast)
    (low, high), margin = test.conf_int(1 - LEVEL)[0], test.conf_int(0.1)[0]
    return Estimate(n, mean, "layout", fit.df_resid, low, high, margin[0], margin[1])


def _of_differences(values: pd.Series, rule: Rule) -> Estimate:
    n, mean = len(values), float(values.mean())
    if n < 2:
        return Estimate(n, mean, rule)
    if values.std() == 0:  # SciPy gives no interval then
        return Estimate(n, mean, rule, n - 1, mean, mean, mean, mean)
    test = stats.ttest_1samp(values, 0.0)
    (low, high), margin = test.confidence_interval(LEVEL), test.confidence_interval(0.9)
    return Estimate(n, mean, rule, n - 1, low, high, margin.low, margin.high)


def verdict(of: Estimate) -> str:
    """What a difference shows, by docs/plan.md: an effect, none of a point or more, or neither."""
    if math.isnan(of.low):
        return "one seed"
    none = of.margin_low > -MARGIN and of.margin_high < MARGIN
    effect = not of.low <= 0 <= of.high
    if none:
        return "an effect, below a point" if effect else "no effect"
    return "an effect" if effect else "undecided"
