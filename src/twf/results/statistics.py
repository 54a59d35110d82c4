"""Statistics over the runs of one cell: pure functions of plain numbers. The unit is the seed.

Two intervals for a mean. `bootstrap_interval` assumes nothing of the values' distribution, and is
too short for few seeds: it cannot reach beyond the values themselves. For three it is their range,
which holds the true mean of normal values in 75 % of cases, not in 95 %; for five in 84 %, for ten
in 90 %. `student_interval` assumes that the values are normal, and then holds it in 95 % for any
number from two on. So the first describes a cell, and the second decides verdicts.

Runs of a source with one network start from the same, so no interval contains what another
pretraining would change; a source with `seeds` has several.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, stdtr, stdtrit

RESAMPLES = 10_000
LEVEL = 0.95
TAIL = (1 - LEVEL) / 2  # of the interval of the least mean, at either end


Interval = tuple[float, float]  # its low and its high end, in the unit of the values


def described(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """The columns of some values: `NAME_mean`, `_std`, and the ends of both intervals.

    `NAME_low` and `NAME_high` are the bootstrap's, `NAME_student_low` and `_high` Student's; None
    where there are too few values.
    """
    found = {f"{name}_mean": mean(values), f"{name}_std": standard_deviation(values)}
    intervals = {name: bootstrap_interval(values), f"{name}_student": student_interval(values)}
    for kind, interval in intervals.items():
        found[f"{kind}_low"], found[f"{kind}_high"] = interval or (None, None)
    return found


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
    return float(low), float(high)


def student_interval(values: Sequence[float]) -> Interval | None:
    """Student's t 95 % interval of the mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    centre = statistics.fmean(values)
    quantile = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return centre - half, centre + half


def least_interval(
    differences: NDArray[np.float64], planned: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both ends of a 95 % interval of the least of several true means.

    `differences` is float64 `[..., difference, seed]`, of at least two seeds, paired: a seed's
    values may depend on each other. `planned` is how many differences the family has, of which some
    may not have been measured yet. Each end is `[...]` and misses in at most 2.5 % of samples:

    - the lower one is the least of the lower ends of Student's intervals. It is above 0 where each
      mean is significantly above 0: an intersection-union test, which needs no correction (Berger,
      Technometrics 1982).
    - the upper one is the least of the upper ends of Student's intervals at the level divided by
      `planned` (Bonferroni). It is below 0 where the first step of Holm's procedure (Scandinavian
      Journal of Statistics, 1979) rejects: some mean is below 0.
    """
    freedom, centre, error = _students(differences)
    low = centre - stdtrit(freedom, 1 - TAIL) * error
    high = centre + stdtrit(freedom, 1 - TAIL / planned) * error
    return low.min(-1), high.min(-1)


def below_zero(differences: NDArray[np.float64], planned: int) -> NDArray[np.bool_]:
    """Which of several true means are found to be below 0: bool `[..., difference]`.

    Of what `least_interval` takes, all steps of Holm's procedure, so that some mean is found where
    the upper end is below 0, and none elsewhere. From the most significant mean on, each is held
    against Student's one-sided level of 2.5 % divided by the number of means of the family that
    have not been found yet, until one is not significant; those not measured are not.

    In at most 2.5 % of samples a mean is found that is not below 0, whatever the true means and
    however they depend on each other (Holm, Scandinavian Journal of Statistics, 1979). For of the
    `m` means that are not, the first to be found must be significant at 2.5 % / m, as all of them
    are left then; by Bonferroni's inequality, one of them is in at most m * 2.5 % / m.
    """
    freedom, centre, error = _students(differences)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 is sorted to the end
        order = np.argsort(centre / error, axis=-1)
    left = planned - np.arange(order.shape[-1])
    centre, error = (np.take_along_axis(values, order, -1) for values in (centre, error))
    significant = centre + stdtrit(freedom, 1 - TAIL / left) * error < 0
    found = np.zeros_like(significant)
    np.put_along_axis(found, order, np.logical_and.accumulate(significant, axis=-1), -1)
    return found


def _students(
    differences: NDArray[np.float64],
) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """Degrees of freedom; over the last axis, means and their standard errors."""
    count = differences.shape[-1]
    return count - 1, differences.mean(-1), differences.std(-1, ddof=1) / math.sqrt(count)


def probability_within(values: Sequence[float], low: float, high: float) -> float | None:
    """The probability that the true mean of normal values lies between two ends.

    The posterior under the prior that is flat in the mean and in the logarithm of the standard
    deviation: Student's distribution with n - 1 degrees of freedom, centred at the mean. So it is
    0.95 for the ends of `student_interval`. None with fewer than two values.
    """
    if len(values) < 2:
        return None
    centre = statistics.fmean(values)
    error = statistics.stdev(values) / math.sqrt(len(values))
    if error == 0:
        return float(low <= centre <= high)
    below, above = (stdtr(len(values) - 1, (end - centre) / error) for end in (low, high))
    return float(above - below)


def chance_within(count: int, deviation: float, margin: float) -> float:
    """How often Student's interval lies within `margin` to each side of the true mean.

    Of `count` normal values with this standard deviation: the power of two one-sided tests for
    equivalence where the truth is the reference. Averaged over 500 quantiles of the variance.
    """
    error = deviation / math.sqrt(count)
    tails = (np.arange(500) + 0.5) / 500
    measured = error * np.sqrt(chdtri(count - 1, tails) / (count - 1))
    room = margin - stdtrit(count - 1, (1 + LEVEL) / 2) * measured
    return float(np.mean(2 * ndtr(np.maximum(room, 0) / error) - 1))


def seeds_needed(deviation: float, margin: float, power: float = 0.8) -> int:
    """The least number of seeds, at most 100,000, with which `chance_within` reaches a power."""
    if deviation == 0:
        return 2
    counts = range(2, 100_000)
    return 2 + bisect_left(counts, power, key=lambda n: chance_within(n, deviation, margin))
