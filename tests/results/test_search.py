"""The best hyperparameters of a search from its records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from twf.files import search_files
from twf.results import search
from twf.study import grids as searching

SEARCH = {"held_out": 0.1, "grids": {"er": {"lr": [0.01, 0.1]}, "derpp": {"alpha": [0.2, 0.4]}}}


@pytest.fixture
def plan(make_plan):
    return make_plan(
        [0, 1], methods=["er", "derpp"], buffers=[500], protocols=["class-il"], search=SEARCH
    )


def write_trials(plan, write_record, method, accuracies, status="finished"):
    """Give each trial of a method its accuracies, by seed."""
    (cell,) = [cell for cell in plan.search if cell.method == method]
    for trial, of_trial in zip(cell.trials, accuracies, strict=True):
        for run, accuracy in zip(trial.runs.values(), of_trial, strict=True):
            matrix = [[accuracy] * 5] * 5
            write_record(plan, run, accuracy_class_il=matrix, status=status)


def best_of(plan, method):
    table = pd.read_csv(search_files(plan.study)[0])
    return table[(table["method"] == method) & table["best"]].to_dict("records")


def test_the_highest_mean_over_seeds_is_the_best(plan, write_record, collect):
    write_trials(plan, write_record, "er", [[90.0, 10.0], [60.0, 50.0]])
    write_trials(plan, write_record, "derpp", [[70.0, 70.0], [60.0, 50.0]])
    search.write(collect(plan))
    (er,) = best_of(plan, "er")
    assert er["hyperparameters"] == '{"lr": 0.1}'
    assert (er["accuracy_mean"], er["n"], er["as_set"]) == (55.0, 2, True)
    (derpp,) = best_of(plan, "derpp")
    assert derpp["hyperparameters"] == '{"lr": 0.03, "alpha": 0.2, "beta": 0.5}'


def test_equals_leave_the_hyperparameters_as_they_are(plan, write_record, collect):
    write_trials(plan, write_record, "er", [[50.0, 50.0], [50.0, 50.0]])
    search.write(collect(plan))
    (er,) = best_of(plan, "er")
    assert er["as_set"]
    assert best_of(plan, "derpp") == []  # nothing has run


def test_a_trial_that_diverged_once_is_not_the_best(plan, write_record, collect):
    (cell,) = [cell for cell in plan.search if cell.method == "er"]
    write_trials(plan, write_record, "er", [[90.0, 90.0], [60.0, 50.0]])
    write_record(plan, cell.trials[0].runs[1], status="diverged", accuracy_class_il=[])
    search.write(collect(plan))
    (er,) = best_of(plan, "er")
    assert er["hyperparameters"] == '{"lr": 0.1}'
    table = pd.read_csv(search_files(plan.study)[0])
    lost = table[(table["method"] == "er") & ~table["best"]].to_dict("records")
    assert (lost[0]["n"], lost[0]["n_diverged"], lost[0]["accuracy_mean"]) == (1, 1, 90.0)


def test_the_best_are_input_of_another_study(plan, write_record, collect):
    write_trials(plan, write_record, "er", [[70.0, 70.0], [60.0, 50.0]])
    search.write(collect(plan))
    _, page, study = search_files(plan.study)
    found = searching.load_best_hyperparameters(str(study), "another")
    (place,) = found.cells
    assert place == ("split-cifar10", "er", 500, "class-il")
    assert found.cells[place].lr == 0.01
    assert "| Split" not in page.read_text()
    assert "| split-cifar10 | ER | 500 | Class-IL | 2 | lr=0.01 | 70.00 | lr=0.1 | 55.00 |" in (
        page.read_text().replace("\\", "")
    )
    assert isinstance(yaml.safe_load(Path(study).read_text()), list)


def test_the_best_factor_is_input_of_another_study(make_plan, write_record, collect):
    plan = make_plan(
        [0],
        methods=["er"],
        buffers=[500],
        protocols=["class-il"],
        search={"held_out": 0.1, "factors": {"lr": [0.333333, 1.0, 3.0]}},
    )
    write_trials(plan, write_record, "er", [[70.0], [60.0], [50.0]])
    search.write(collect(plan))
    found = searching.load_best_hyperparameters(str(search_files(plan.study)[2]), "another")
    assert (found.cells, found.factors) == ({}, {("split-cifar10", "er"): {"lr": 0.333333}})
