"""Statistics over the runs of one cell. The unit is the seed.

There is one interval of a mean: Student's, 95 %, which holds the true mean of normal values in 95 %
of cases for any number of seeds from two on. Runs of a source with one network start from the same,
so no interval contains what another pretraining would change; a source with `seeds` has several.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, stdtrit

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


def student_interval(values: Sequence[float]) -> Interval | None:
    """Student's t 95 % interval of the mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    freedom, centre, error = _students(np.asarray(values, np.float64))
    half = stdtrit(freedom, 1 - TAIL) * error
    return float(centre - half), float(centre + half)


def interval_of_minimum(
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

    Of what `interval_of_minimum` takes, all steps of Holm's procedure, so that some mean is found
    where the upper end is below 0, and none elsewhere. From the most significant mean on, each is
    held against Student's one-sided level of 2.5 % divided by the number of means of the family
    that have not been found yet, until one is not significant; those not measured are not.

    In at most 2.5 % of samples a mean is found that is not below 0, whatever the true means and
    however they depend on each other (Holm, Scandinavian Journal of Statistics, 1979).
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
