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
SHIFT, POWER = 2.0, 0.8  # points of a scale that a test of one curve is to find, and how likely
SIGNS = (1.0, -1.0, -1.0, 1.0)  # of the arms of a difference, and of one of two differences

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


def of_arms(arms: Sequence[pd.Series], rule: Rule) -> Estimate:
    """The mean of one arm, the difference of two, or that of two differences, of four.

    An arm has a value per seed (the index), float64 `[seeds]`, null where there is none. For
    `welch` arms are independent samples; else values are added over the seeds that all arms have.
    """
    signed = [sign * arm.dropna() for sign, arm in zip(SIGNS, arms, strict=False)]
    if rule != "welch":
        signed = [pd.concat(signed, axis=1).dropna().sum(axis=1)]
    return total(signed, rule)


def total(parts: Sequence[pd.Series], rule: Rule) -> Estimate:
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
    """A contrast of corners (columns) in a two-way layout with seeds (rows), by docs/plan.md.

    Without interaction; seeds that lack a corner are left out.
    """
    import statsmodels.formula.api as smf

    complete = corners.dropna()
    n, means = len(complete), complete.mean()[list(weights)]
    mean = float((means * pd.Series(weights)).sum(skipna=False))
    if n < 2:
        return Estimate(n, mean, "layout")
    long = complete.rename_axis("seed").reset_index().melt("seed", var_name="corner")
    fit = smf.ols("value ~ 0 + C(corner) + C(seed)", long).fit()
    contrast = [weights.get(name[len("C(corner)[") : -1], 0.0) for name in fit.params.index]
    test = fit.t_test(contrast)
    ends = (test.conf_int(1 - level)[0] for level in (LEVEL, MARGIN_LEVEL))
    return Estimate(n, mean, "layout", fit.df_resid, *np.concatenate(list(ends)))


class Curve(NamedTuple):
    """An F test of whether points are on one curve, and the chance to see where they are not."""

    f: float
    df: int  # of the scales, beyond the first
    residual_df: int
    p: float
    power: float

    @property
    def verdict(self) -> str:
        if self.p < 1 - LEVEL:
            return "not one curve"
        return "one curve" if self.power >= POWER else "undecided"


def one_curve(points: pd.DataFrame) -> Curve:
    """Whether `gain` depends on the `share` alone or on its `scale` too, by docs/plan.md.

    Two regressions, on the share and its square, without and with a factor for the scale. The power
    is that of finding one scale shifted by `SHIFT`, the least over scales of three points or more.
    """
    import statsmodels.formula.api as smf

    alone = smf.ols("gain ~ share + I(share**2)", points).fit()
    each = smf.ols("gain ~ share + I(share**2) + C(scale)", points).fit()
    f, p, df = each.compare_f_test(alone)
    critical = stats.f.isf(1 - LEVEL, df, each.df_resid)
    counts = points["scale"].value_counts()
    shifts = [SHIFT * (points["scale"] == scale) for scale in counts.index[counts >= 3]]
    # what the curve alone does not explain of a shift, over the variance
    unseen = [type(alone.model)(shift, alone.model.exog).fit().ssr for shift in shifts]
    power = stats.ncf.sf(critical, df, each.df_resid, np.array(unseen) / each.mse_resid).min()
    return Curve(float(f), int(df), int(each.df_resid), float(p), float(power))


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

    The family has `planned` means, measured or not. Each end misses in at most 2.5 % of samples:

    - the lower one is the least of the single intervals': it is above 0 where each mean is
      significantly so, an intersection-union test without correction (Berger, Technometrics 1982).
    - the upper one is the least of the upper ends at the level divided by `planned` (Bonferroni).
      Those means are below 0 whose upper end is.
    """
    frame, tail = pd.DataFrame(means), (1 - LEVEL) / 2
    single, corrected = (stats.t.isf(part, frame["df"]) for part in (tail, tail / planned))
    upper = frame["mean"] + (frame["high"] - frame["mean"]) * corrected / single
    ends = frame["df"].iloc[frame["low"].argmin()], frame["low"].min(), upper.min()
    estimate = Estimate(means[0].n, float(frame["mean"].min()), "least", *map(float, ends))
    return estimate, (upper < 0).tolist()
