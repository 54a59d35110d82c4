"""Final average accuracy and forgetting: golden numbers, matrices worked by hand, properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twf.learning.evaluation.metrics import final_average_accuracy, forgetting, forgetting_paper


def test_golden_metrics(golden):
    """Both forgettings and the average accuracy; the golden matrix is float32."""
    case = golden("metrics")
    accuracy = case["accuracy_after_task"].double().tolist()
    for metric, name in (
        (final_average_accuracy, "final_average_accuracy"),
        (forgetting, "forgetting_reference_code"),
        (forgetting_paper, "forgetting_paper"),
    ):
        assert metric(accuracy) == pytest.approx(case[name].item(), abs=1e-4)


# Three tasks; a row is a phase. Task 0: 80, 90, 60. Task 1: 5 (not yet learned), 70, 65.
THREE = [[80.0, 5.0, 0.0], [90.0, 70.0, 0.0], [60.0, 65.0, 100.0]]


def test_three_tasks_by_hand():
    assert final_average_accuracy(THREE) == 75.0  # (60 + 65 + 100) / 3
    assert forgetting(THREE) == 17.5  # ((90 - 60) + (70 - 65)) / 2
    assert forgetting_paper(THREE) == 17.5


def test_a_task_that_is_best_at_the_end_counts_zero_or_by_the_paper_negative():
    better = [[80.0, 0.0], [90.0, 50.0]]
    assert forgetting(better) == 0.0
    assert forgetting_paper(better) == -10.0


def test_accuracy_on_a_task_before_it_was_learned_does_not_count():
    """Task 1 is at 99 by chance after phase 0, before its own phase."""
    lucky = [[50.0, 99.0, 0.0], [50.0, 60.0, 0.0], [50.0, 40.0, 70.0]]
    assert forgetting(lucky) == 10.0  # (0 + (60 - 40)) / 2
    assert forgetting_paper(lucky) == 10.0


def test_the_last_task_has_had_no_time_to_be_forgotten():
    same = [[50.0, 0.0], [50.0, 10.0]]
    other = [[50.0, 0.0], [50.0, 90.0]]
    assert forgetting(same) == forgetting(other) == 0.0


def test_joint_has_no_forgetting():
    joint = [[70.0, 80.0, 90.0]]
    assert final_average_accuracy(joint) == 80.0
    assert forgetting(joint) is None
    assert forgetting_paper(joint) is None


per_cent = st.integers(0, 400).map(lambda quarter: quarter / 4)  # so that sums are exact
matrices = st.integers(2, 6).flatmap(
    lambda t: st.lists(st.lists(per_cent, min_size=t, max_size=t), min_size=t, max_size=t)
)


@given(matrices)
def test_forgetting_is_never_negative_and_never_below_the_papers(accuracy):
    value, paper = forgetting(accuracy), forgetting_paper(accuracy)
    assert value >= 0
    assert value >= paper
    assert -100 <= paper <= value <= 100


@given(matrices)
def test_the_two_forgettings_differ_only_where_a_task_is_best_at_the_end(accuracy):
    last = len(accuracy) - 1
    grew = any(accuracy[last][i] > max(accuracy[t][i] for t in range(i, last)) for i in range(last))
    assert (forgetting(accuracy) != forgetting_paper(accuracy)) == grew
