"""Accuracy, forgetting and backward transfer of a run, from its accuracy matrix.

`accuracy[t][i]` is the accuracy, in per cent, on task i after training on task t (both from 0).
"""

import statistics
from collections.abc import Sequence

Matrix = Sequence[Sequence[float]]


def final_average_accuracy(accuracy: Matrix) -> float:
    """FAA: the mean over all tasks of the accuracy after the last phase, in per cent."""
    last = accuracy[-1]
    return sum(last) / len(last)


def forgetting(accuracy: Matrix) -> float | None:
    """FF as the published code computes it: best over all tasks, the last included, minus final.

        1 / (T-1) * sum_{i < T-1} max_{i <= t <= T-1} (a_i^t - a_i^{T-1})

    It is never negative. None where there is a single phase (Joint), which forgets nothing.
    """
    return _forgetting(accuracy, last=len(accuracy))


def forgetting_paper(accuracy: Matrix) -> float | None:
    """FF by the paper's formula: the best is taken over t <= T-2, so it can be negative."""
    return _forgetting(accuracy, last=len(accuracy) - 1)


def _forgetting(accuracy: Matrix, last: int) -> float | None:
    tasks = len(accuracy)
    if tasks < 2:
        return None
    drops = [
        max(accuracy[t][i] for t in range(i, last)) - accuracy[-1][i] for i in range(tasks - 1)
    ]
    return sum(drops) / len(drops)


def backward_transfer(accuracy: Matrix) -> float | None:
    """`1 / (T-1) sum_{i < T-1} (a_i^{T-1} - a_i^i)`; None where there is a single phase."""
    tasks = len(accuracy)
    if tasks < 2:
        return None
    return sum(accuracy[-1][i] - accuracy[i][i] for i in range(tasks - 1)) / (tasks - 1)


def spread(accuracy: Matrix) -> float:
    """The standard deviation over tasks of the accuracy after the last phase, divisor T."""
    return statistics.pstdev(accuracy[-1])
