"""From values of runs to estimates: means, differences, their intervals and verdicts.

The unit is the seed. One interval per question, by one rule: Student's of a mean; paired by seed
between variants of one method, which share network, order and buffer; Welch's between methods. The
two-way layout is for what docs/plan.md fixed so. A difference is the new thing minus its baseline.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95
MARGIN = 1.0  # points to each side of 0 that count as no effect

Rule = Literal["student", "paired", "welch", "layout", "least"]


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
    n, mean, sd = len(values), float(values.mean()), float(values.std())
    if n < 2:
        return Estimate(n, mean, rule)
    ends = (*_student(n, mean, sd, LEVEL), *_student(n, mean, sd, 0.9))
    return Estimate(n, mean, rule, n - 1, *ends)


def _student(n: Any, mean: Any, sd: Any, level: float) -> tuple[Any, Any]:
    """The ends of Student's interval, of numbers or of a column of them; null for one value."""
    half = stats.t.ppf((1 + level) / 2, n - 1) * sd / np.sqrt(n)
    return mean - half, mean + half


def verdict(estimate: Estimate) -> str:
    """What a difference shows, by docs/plan.md: an effect, none of a point or more, or neither."""
    if math.isnan(estimate.low):
        return "one seed"
    none = estimate.margin_low > -MARGIN and estimate.margin_high < MARGIN
    effect = not estimate.low <= 0 <= estimate.high
    if none:
        return "an effect, below a point" if effect else "no effect"
    return "an effect" if effect else "undecided"


def summary(groups: Any) -> pd.DataFrame:
    """`n`, `mean`, `sd` (divisor n - 1), `low` and `high` of each group of a pandas group-by.

    Student's interval, as `cell` gives; null where a group has too few values, and nulls are none.
    """
    n, mean, sd = groups.count(), groups.mean(), groups.std()
    low, high = _student(n, mean, sd, LEVEL)
    return pd.DataFrame({"n": n, "mean": mean, "sd": sd, "low": low, "high": high})


class Sum(NamedTuple):
    """A sum of independent means, with its standard error and degrees of freedom."""

    mean: float
    error: float
    df: float


def total(parts: Sequence[NDArray[np.float64]]) -> Sum:
    """The sum of the means of independent samples, each float64 `[seeds]`.

    Degrees of freedom by Welch and Satterthwaite: of two samples, Welch's; of one, Student's.
    """
    mean = round(float(sum(part.mean() for part in parts)), 9)  # cells that are alike cancel
    if any(len(part) < 2 for part in parts):
        return Sum(mean, math.nan, math.nan)
    squares = np.array([part.var(ddof=1) / len(part) for part in parts])
    freedoms = np.array([len(part) - 1 for part in parts])
    error = math.sqrt(squares.sum())
    df = squares.sum() ** 2 / (squares**2 / freedoms).sum() if error else freedoms.min()
    return Sum(mean, error, float(df))


class Least(NamedTuple):
    """The least of several true means: estimate, both ends of its 95 % interval, and its df."""

    mean: float
    low: float
    high: float
    df: float


def least(sums: Sequence[Sum], planned: int) -> Least:
    """An interval of the least of several true means, which may depend on each other.

    `planned` is how many means the family has, of which some may not have been measured yet. Each
    end misses in at most 2.5 % of samples:

    - the lower one is the least of the lower ends of the single intervals. It is above 0 where each
      mean is significantly above 0: an intersection-union test, which needs no correction (Berger,
      Technometrics 1982).
    - the upper one is the least of the upper ends of the single intervals at the level divided by
      `planned` (Bonferroni). It is below 0 where the first step of Holm's procedure (Scandinavian
      Journal of Statistics, 1979) rejects.
    """
    mean, error, df = (np.array(column) for column in zip(*sums, strict=True))
    tail = (1 - LEVEL) / 2
    lows = mean - stats.t.isf(tail, df) * error
    high = (mean + stats.t.isf(tail / planned, df) * error).min()
    return Least(float(mean.min()), float(lows.min()), float(high), float(df[lows.argmin()]))


def below_zero(sums: Sequence[Sum], planned: int) -> list[bool]:
    """Which of several true means are found to be below 0, by all steps of Holm's procedure.

    So some mean is found where the upper end of `least` is below 0, and none elsewhere.
    """
    from statsmodels.stats.multitest import multipletests  # to import takes a second

    mean, error, df = (np.array(column) for column in zip(*sums, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 is no evidence
        chance = np.where(error == 0, (mean >= 0) * 1.0, stats.t.cdf(mean / error, df))
    family = np.append(chance, np.ones(planned - len(sums)))
    below = multipletests(family, (1 - LEVEL) / 2, method="holm")[0]
    return below[: len(sums)].tolist()
