"""Statistics over runs. The unit is the seed.

Intervals are of 95 % and for normal values: Student's of a mean, Welch's of the sum of independent
ones; `contrasts` says which is whose. Runs of a source start from one network, so no interval
contains what another pretraining would change.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, stdtr, stdtrit

LEVEL = 0.95
TAIL = (1 - LEVEL) / 2
SAMPLES = 10_000  # of a simulation

Interval = tuple[float, float]  # its low and its high end, in the unit of the values


def summary(values: Any, name: str) -> pd.DataFrame:
    """Of grouped values: their mean, sample standard deviation (divisor n - 1) and interval.

    `values` is a pandas group-by of one column. A row for each group with the columns `NAME_mean`,
    `NAME_std`, `NAME_low` and `NAME_high`, null where there are too few values; a null is none.
    """
    count, mean, deviation = values.count(), values.mean(), values.std()
    half = stdtrit(count - 1, 1 - TAIL) * deviation / np.sqrt(count)
    columns = {"mean": mean, "std": deviation, "low": mean - half, "high": mean + half}
    return pd.DataFrame({f"{name}_{key}": column for key, column in columns.items()})


class Estimate(NamedTuple):
    """Estimated means or differences: float64 `[...]` each, null where there are too few values."""

    mean: Any
    error: Any  # its standard error
    freedom: Any  # the degrees of freedom of that

    def ends(self, level: float = LEVEL) -> tuple[Any, Any]:
        """Both ends of the interval of this level: mean -+ t x error."""
        half = stdtrit(self.freedom, (1 + level) / 2) * self.error
        return self.mean - half, self.mean + half


def student(values: Any) -> Estimate:
    """The mean of values `[..., seed]`, with Student's n - 1 degrees of freedom."""
    values = np.asarray(values, np.float64)
    count = values.shape[-1]
    with np.errstate(invalid="ignore", divide="ignore"):  # of one value there is no deviation
        deviation = np.sqrt(((values - values.mean(-1, keepdims=True)) ** 2).sum(-1) / (count - 1))
    mean = values.mean(-1)
    return Estimate(mean, deviation / math.sqrt(count), np.full_like(mean, count - 1 or np.nan))


def total(parts: Sequence[Estimate]) -> Estimate:
    """The sum of independent estimates, with the degrees of freedom of Welch and Satterthwaite.

    Of a cell's mean and the negative of another's, this is Welch's interval of their difference.
    """
    squares = np.array([np.square(part.error) for part in parts])
    freedoms = np.array([part.freedom for part in parts])
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = squares.sum(0) ** 2 / (squares**2 / freedoms).sum(0)
    freedom = np.where(squares.sum(0) == 0, freedoms.min(0), freedom)  # where nothing varies
    return Estimate(sum(part.mean for part in parts), np.sqrt(squares.sum(0)), freedom)


def student_interval(values: Sequence[float]) -> Interval | None:
    """Student's 95 % interval of the mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    low, high = student(values).ends()
    return float(low), float(high)


def interval_of_minimum(
    differences: Estimate, planned: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both ends of a 95 % interval of the least of several true differences, `[..., difference]`.

    They may depend on each other. `planned` is how many differences the family has, of which some
    may not have been measured yet. Each end is `[...]` and misses in at most 2.5 % of samples:

    - the lower one is the least of the lower ends of the single intervals. It is above 0 where each
      difference is significantly above 0: an intersection-union test, which needs no correction
      (Berger, Technometrics 1982).
    - the upper one is the least of the upper ends of the single intervals at the level divided by
      `planned` (Bonferroni). It is below 0 where the first step of Holm's procedure (Scandinavian
      Journal of Statistics, 1979) rejects: some difference is below 0.
    """
    mean, error, freedom = differences
    low = mean - stdtrit(freedom, 1 - TAIL) * error
    high = mean + stdtrit(freedom, 1 - TAIL / planned) * error
    return low.min(-1), high.min(-1)


def below_zero(differences: Estimate, planned: int) -> NDArray[np.bool_]:
    """Which of several true differences are found to be below 0: bool `[..., difference]`.

    Of what `interval_of_minimum` takes, all steps of Holm's procedure, so that some difference is
    found where the upper end is below 0, and none elsewhere. From the most significant one on, each
    is held against the one-sided level of 2.5 % divided by the number of differences of the family
    that have not been found yet, until one is not significant; those not measured are not.

    In at most 2.5 % of samples a difference is found that is not below 0, whatever the true ones
    and however they depend on each other (Holm, Scandinavian Journal of Statistics, 1979).
    """
    mean, error, freedom = differences
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 is no evidence
        chance = np.where(error == 0, np.where(mean < 0, 0.0, 1.0), stdtr(freedom, mean / error))
    order = np.argsort(chance, axis=-1)
    left = planned - np.arange(order.shape[-1])
    significant = np.take_along_axis(chance, order, -1) < TAIL / left
    below = np.zeros_like(significant)
    np.put_along_axis(below, order, np.logical_and.accumulate(significant, axis=-1), -1)
    return below


def chance_within(count: int, deviation: float, margin: float) -> float:
    """How often Student's interval lies within `margin` to each side of the true mean.

    Of `count` normal values with this standard deviation: the power of two one-sided tests for
    equivalence where the truth is the reference. Averaged over 500 quantiles of the variance.
    """
    error = deviation / math.sqrt(count)
    tails = (np.arange(500) + 0.5) / 500
    measured = error * np.sqrt(chdtri(count - 1, tails) / (count - 1))
    room = margin - stdtrit(count - 1, 1 - TAIL) * measured
    return float(np.mean(2 * ndtr(np.maximum(room, 0) / error) - 1))


def seeds_needed(deviation: float, margin: float, power: float = 0.8) -> int:
    """The least number of seeds, at most 100,000, with which `chance_within` reaches a power."""
    if deviation == 0:
        return 2
    counts = range(2, 100_000)
    return 2 + bisect_left(counts, power, key=lambda n: chance_within(n, deviation, margin))
