"""Statistics over the runs of one cell: pure functions of plain numbers. The unit is the seed.

Two intervals for a mean. `bootstrap_interval` assumes nothing of the values' distribution, and is
too short for few seeds: it cannot reach beyond the values themselves. For three it is their range,
which holds the true mean of normal values in 75 % of cases, not in 95 %; for five in 84 %, for ten
in 90 %. `student_interval` assumes that the values are normal, and then holds it in 95 % for any
number from two on. So the first describes a cell, and the second decides verdicts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

RESAMPLES = 10_000
LEVEL = 0.95


class Interval(NamedTuple):
    """The two ends of an interval, in the unit of the values."""

    low: float
    high: float


def described(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """The columns of some values: `NAME_mean`, `_std`, and the ends of both intervals.

    `NAME_low` and `NAME_high` are the bootstrap's, `NAME_student_low` and `_high` Student's; None
    where there are too few values.
    """
    return {
        f"{name}_mean": mean(values),
        f"{name}_std": standard_deviation(values),
        **ends(name, bootstrap_interval(values)),
        **ends(f"{name}_student", student_interval(values)),
    }


def ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    """The columns `NAME_low` and `NAME_high` of an interval; None where there is none."""
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None without a value."""
    return statistics.fmean(values) if values else None


def standard_deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation (divisor n - 1); None with fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def interquartile_mean(values: Sequence[float]) -> float | None:
    """The mean of what is left without the lowest and highest quarter; None without a value.

    A quarter is rounded down to whole values, as in Agarwal et al. (2021) and SciPy's `trim_mean`
    (whose module takes a second to import): it is the mean for fewer than four.
    """
    cut = len(values) // 4
    return mean(sorted(values)[cut : len(values) - cut])


@cache
def resamples(count: int) -> NDArray[np.int64]:
    """Positions of `RESAMPLES` samples of `count` out of `count`, drawn with replacement.

    int64 `[RESAMPLES, count]`, the same at each call: what is resampled with them is paired, also
    across cells, and every result is reproducible.
    """
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))


def bootstrap_interval(values: Sequence[float]) -> Interval | None:
    """The percentile bootstrap 95 % interval of the mean; None with fewer than two values.

    Percentiles, not BCa: BCa estimates a correction of bias and skew from the values, which is
    undefined where all are alike and unstable for the few seeds there are.
    """
    if len(values) < 2:
        return None
    means = np.asarray(values, np.float64)[resamples(len(values))].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def student_interval(values: Sequence[float]) -> Interval | None:
    """Student's t 95 % interval of the mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    centre = statistics.fmean(values)
    quantile = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(centre - half, centre + half)
