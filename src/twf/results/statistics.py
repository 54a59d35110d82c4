"""From values of runs to estimates: means, differences, their intervals and verdicts.

The unit is the seed: Student's interval of a mean; paired by seed between variants of one method,
which share network, order and buffer; Welch's between methods; layout where docs/plan.md fixed it.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.95
MARGIN = 1.0  # points to each side of 0 that count as no effect
MARGIN_LEVEL = 0.9  # of two one-sided tests at 5 %

Rule = Literal["student", "paired", "welch", "layout", "least"]


class Estimate(NamedTuple):
    """A mean or a difference in the unit of its values, with its interval; null with one seed."""

    n: int  # seeds; of two methods, the smaller number
    mean: float
    rule: Rule
    df: float = math.nan  # degrees of freedom
    low: float = math.nan  # the ends of the interval of `LEVEL`
    high: float = math.nan
    margin_low: float = math.nan  # the ends of the interval of `MARGIN_LEVEL`
    margin_high: float = math.nan


def cell(values: pd.Series) -> Estimate:
    """The mean of values by seed (float64 `[seeds]`), with Student's interval."""
    return total([values], "student")


def paired(new: pd.Series, baseline: pd.Series) -> Estimate:
    """The mean difference over the seeds (the index) that both have, with Student's interval."""
    return total([(new - baseline).dropna()], "paired")


def welch(new: pd.Series, baseline: pd.Series) -> Estimate:
    """The difference of two means, with Welch's interval."""
    return total([new, -baseline], "welch")


def total(parts: Sequence[pd.Series], rule: Rule = "welch") -> Estimate:
    """The sum of the means of independent samples, each float64 `[seeds]`.

    Degrees of freedom by Welch and Satterthwaite: of two samples, Welch's; of one, Student's.
    """
    n = min(map(len, parts))
    mean = float(sum(part.mean() for part in parts))
    mean = 0.0 if abs(mean) < 1e-9 else mean  # cells that are alike cancel
    if n < 2:
        return Estimate(n, mean, rule)
    squares = np.array([part.var(ddof=1) / len(part) for part in parts])
    freedoms = np.array([len(part) - 1 for part in parts])
    error = math.sqrt(squares.sum())
    df = float(squares.sum() ** 2 / (squares**2 / freedoms).sum() if error else freedoms.min())
    half, of_margin = (stats.t.ppf((1 + x) / 2, df) * error for x in (LEVEL, MARGIN_LEVEL))
    ends = mean - half, mean + half, mean - of_margin, mean + of_margin
    return Estimate(n, mean, rule, df, *ends)


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
    ends = (test.conf_int(1 - level)[0] for level in (LEVEL, MARGIN_LEVEL))
    return Estimate(n, mean, "layout", fit.df_resid, *np.concatenate(list(ends)))


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
    """`n`, `mean`, `sd` (divisor n - 1) and Student's `low` and `high` of each pandas group."""
    frame = pd.DataFrame({"n": groups.count(), "mean": groups.mean(), "sd": groups.std()})
    half = stats.t.ppf((1 + LEVEL) / 2, frame["n"] - 1) * frame["sd"] / np.sqrt(frame["n"])
    return frame.assign(low=frame["mean"] - half, high=frame["mean"] + half)


def least(means: Sequence[Estimate], planned: int) -> tuple[Estimate, list[bool]]:
    """The least of several true means, which may depend on each other; and which are below 0.

    `planned` is how many means the family has, of which some may not have been measured yet. Each
    end of the 95 % interval misses in at most 2.5 % of samples:

    - the lower one is the least of the lower ends of the single intervals. It is above 0 where each
      mean is significantly above 0: an intersection-union test, which needs no correction (Berger,
      Technometrics 1982).
    - the upper one is the least of the upper ends of the single intervals at the level divided by
      `planned` (Bonferroni). Those means are below 0 whose upper end is.
    """
    mean, df, low, high = (
        np.array([getattr(each, name) for each in means]) for name in ("mean", "df", "low", "high")
    )
    tail = (1 - LEVEL) / 2
    upper = mean + (high - mean) * stats.t.isf(tail / planned, df) / stats.t.isf(tail, df)
    ends = float(df[low.argmin()]), float(low.min()), float(upper.min())
    return Estimate(means[0].n, float(mean.min()), "least", *ends), (upper < 0).tolist()
