"""Accuracy and forgetting of a run, from its accuracy matrix.

`accuracy[t][i]` is the accuracy, in per cent, on task i after training on task t (both from 0).
"""

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


def learning_accuracy(accuracy: Matrix) -> float:
    """The mean over tasks of the accuracy right after learning each, in per cent."""
    if len(accuracy) == 1:
        return final_average_accuracy(accuracy)
    return sum(accuracy[t][t] for t in range(len(accuracy))) / len(accuracy)


def average_incremental_accuracy(accuracy: Matrix) -> float:
    """The mean over phases of the average accuracy on the tasks seen so far, in per cent."""
    averages = average_accuracies(accuracy)
    return sum(averages) / len(averages)


def average_accuracies(accuracy: Matrix) -> list[float]:
    """After each phase, the average accuracy on the tasks seen so far, in per cent."""
    if len(accuracy) == 1:  # Joint has seen all of them
        return [final_average_accuracy(accuracy)]
    return [sum(row[: t + 1]) / (t + 1) for t, row in enumerate(accuracy)]


def backward_transfer(accuracy: Matrix) -> float | None:
    """`1 / (T-1) sum_{i < T-1} (a_i^{T-1} - a_i^i)`; None where there is a single phase."""
    tasks = len(accuracy)
    if tasks < 2:
        return None
    return sum(accuracy[-1][i] - accuracy[i][i] for i in range(tasks - 1)) / (tasks - 1)


def forward_transfer(accuracy: Matrix, initial: Sequence[float]) -> float | None:
    """`1 / (T-1) sum_{i > 0} (a_i^{i-1} - b_i)`, b the accuracy before any training.

    None where there is a single phase.
    """
    tasks = len(accuracy)
    if tasks < 2:
        return None
    return sum(accuracy[i - 1][i] - initial[i] for i in range(1, tasks)) / (tasks - 1)
