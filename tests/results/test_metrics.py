"""A study's metrics from synthetic records: what DVC reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twf.files import metrics_file
from twf.results import metrics
from twf.results.runs import Runs
from twf.study import Plan


def written(runs: Runs) -> dict[str, Any]:
    metrics.write(runs)
    found: dict[str, Any] = json.loads(metrics_file("small").read_text())
    return found


def falling(final: float) -> list[list[float]]:
    """Each of 5 tasks 10 points better before the last phase than after it."""
    return [[final + 10.0] * 5] * 4 + [[final] * 5]


def write_all(plan: Plan, write_record: Any, final: dict[str, float]) -> None:
    """A record for each run, ending at its method's accuracy plus its seed."""
    for name, run in plan.runs.items():
        matrix = falling(final[run.method] + run.seed)
        write_record(plan, name, accuracy_class_il=matrix, accuracy_task_il=matrix)


def test_each_cell_has_its_means_by_table_and_cell(make_plan, write_record, collect):
    plan = make_plan([0, 1], methods=["finetune", "er"], protocols=["class-il"], buffers=[500])
    write_all(plan, write_record, {"finetune": 20.0, "er": 60.0})
    assert written(collect(plan)) == {
        "main": {
            "split-cifar10": {
                "finetune": {"class-il": {"faa": 20.5, "ff": 10.0}},
                "er": {"500": {"class-il": {"faa": 60.5, "ff": 10.0}}},
            }
        }
    }


def test_a_mean_over_fewer_runs_says_how_many_are_missing(make_plan, write_record, collect):
    plan = make_plan([0, 1, 2], methods=["joint", "er"], protocols=["class-il"], buffers=[500])
    write_record(plan, "split-cifar10.joint.s0")
    write_record(plan, "split-cifar10.er.500.s0", status="diverged", accuracy_class_il=[])
    write_record(plan, "split-cifar10.er.500.s1", digest="of other parameters")
    cells = written(collect(plan))["main"]["split-cifar10"]
    assert cells["joint"] == {"class-il": {"faa": 80.0, "missing": 2}}  # Joint forgets nothing
    assert cells["er"] == {"500": {"class-il": {"missing": 3}}}


@pytest.mark.parametrize("definition", ["published", "paper"])
def test_forgetting_is_what_the_table_shows(make_plan, write_record, collect, definition):
    plan = make_plan([0], methods=["er"], protocols=["class-il"], buffers=[500])
    table = plan.tables["main.split-cifar10"].model_copy(update={"forgetting": definition})
    plan = plan.model_copy(update={"tables": {table.name: table}})
    rising = [[10.0 * (phase + 1)] * 5 for phase in range(5)]  # 50 in the end, 40 before
    write_record(plan, "split-cifar10.er.500.s0", accuracy_class_il=rising)
    found = written(collect(plan))["main"]["split-cifar10"]["er"]["500"]["class-il"]
    assert found["ff"] == {"published": 0.0, "paper": -10.0}[definition]


def test_variants_have_a_level_of_their_own(make_plan, write_record, collect):
    weak = {"title": "weak", "hyperparameters": {"alpha": 0.0}}
    variants = {"as-set": {"title": "as set"}, "weak": weak}
    plan = make_plan(
        [0], methods=["derpp"], protocols=["task-il"], buffers=[500], variants=variants
    )
    write_all(plan, write_record, {"derpp": 70.0})
    assert written(collect(plan))["main"]["split-cifar10"]["derpp"] == {
        "as-set": {"500": {"task-il": {"faa": 70.0, "ff": 10.0}}},
        "weak": {"500": {"task-il": {"faa": 70.0, "ff": 10.0}}},
    }


def test_a_search_has_its_best_trial(make_plan, write_record, collect):
    search = {"held_out": 0.1, "grids": {"er": {"lr": [0.01, 0.1]}}}
    plan = make_plan(
        [0], methods=["er"], protocols=["class-il"], buffers=[500, 5120], search=search
    )
    small, _ = plan.search
    for trial, accuracy in zip(small.trials, (40.0, 50.0), strict=True):
        write_record(plan, trial.runs[0], accuracy_class_il=[[accuracy] * 5] * 5)
    assert written(collect(plan)) == {
        "search": {
            "split-cifar10": {
                "er": {
                    "500": {"class-il": {"held_out_faa": 50.0}},
                    "5120": {"class-il": {"missing": 2}},
                }
            }
        }
    }
