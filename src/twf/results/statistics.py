"""Statistics over the runs of one cell: pure functions of plain numbers. The unit is the seed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None without a value."""
    return statistics.fmean(values) if values else None


def standard_deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation (divisor n - 1); None with fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None
