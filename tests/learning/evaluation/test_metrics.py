"""Final average accuracy and forgetting: golden numbers, and matrices worked by hand."""

import pytest

from twf.learning.evaluation.metrics import (
    backward_transfer,
    final_average_accuracy,
    forgetting,
    forgetting_paper,
)


def test_golden_metrics(golden):
    """Forgettings, transfer and the average accuracy; the golden matrix is float32."""
    case = golden("metrics")
    accuracy = case["accuracy_after_task"].double().tolist()
    for metric, name in (
        (final_average_accuracy, "final_average_accuracy"),
        (forgetting, "forgetting_reference_code"),
        (forgetting_paper, "forgetting_paper"),
        (backward_transfer, "backward_transfer"),
    ):
        assert metric(accuracy) == pytest.approx(case[name].item(), abs=1e-4)


# A row is a phase; forgetting of the published code, by the paper, and the average accuracy.
BY_HAND = {
    # task 0: 80, 90, 60; task 1: 5 (not yet learned), 70, 65: ((90 - 60) + (70 - 65)) / 2
    "three tasks": ([[80.0, 5.0, 0.0], [90.0, 70.0, 0.0], [60.0, 65.0, 100.0]], 17.5, 17.5, 75.0),
    "best at the end": ([[80.0, 0.0], [90.0, 50.0]], 0.0, -10.0, 70.0),
    # task 1 is at 99 by chance before its own phase: (0 + (60 - 40)) / 2
    "lucky": ([[50.0, 99.0, 0.0], [50.0, 60.0, 0.0], [50.0, 40.0, 70.0]], 10.0, 10.0, 160 / 3),
    "the last task": ([[50.0, 0.0], [50.0, 10.0]], 0.0, 0.0, 30.0),
    "the last task, better": ([[50.0, 0.0], [50.0, 90.0]], 0.0, 0.0, 70.0),
    "Joint": ([[70.0, 80.0, 90.0]], None, None, 80.0),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_matrices_worked_by_hand(case):
    accuracy, published, paper, average = BY_HAND[case]
    assert forgetting(accuracy) == published
    assert forgetting_paper(accuracy) == paper
    assert final_average_accuracy(accuracy) == pytest.approx(average)
