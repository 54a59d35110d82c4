"""The best hyperparameters of a search from its records."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from twf.errors import UserError
from twf.files import figures_folder, report_file, search_files
from twf.results import report, search
from twf.results.frame import untuned
from twf.results.record import carried
from twf.study import expansion as searching
from twf.study.products import study_digest

SEARCH = {"held_out": 0.1, "grids": {"er": {"lr": [0.01, 0.1]}, "derpp": {"alpha": [0.2, 0.4]}}}


@pytest.fixture
def plan(make_plan):
    return make_plan(
        [0, 1], methods=["er", "derpp"], buffers=[500], protocols=["class-il"], search=SEARCH
    )


def of_trials(plan, **levels):
    """Records of trials: of a method, the accuracies of each trial by seed."""
    return {
        run: level
        for cell in plan.search
        if cell.method in levels
        for trial, of_trial in zip(cell.trials, levels[cell.method], strict=True)
        for run, level in zip(trial.runs.values(), of_trial, strict=True)
    }


def write(results):
    search.write(results, search.trials(results))


def best_of(plan, method):
    table = pd.read_csv(search_files(plan.study)[0])
    return table[(table["method"] == method) & table["best"]].to_dict("records")


def test_a_trial_that_diverged_once_is_not_the_best_and_equals_leave_what_is_set(plan, recorded):
    records = of_trials(plan, er=[[60.0, 50.0], [90.0, 90.0]], derpp=[[50.0, 50.0]] * 2)
    records[list(records)[3]] = {"status": "diverged"}
    results = recorded(plan, records)
    write(results)
    shown = [row["Accuracy"] for row in search.text_rows(search.trials(results))]
    assert shown == ["55.00", "—", "50.00"]
    (er,), (derpp,) = best_of(plan, "er"), best_of(plan, "derpp")
    assert er["hyperparameters"] == '{"lr": 0.01}' and derpp["as_set"]
    table = pd.read_csv(search_files(plan.study)[0])
    lost = table[(table["method"] == "er") & ~table["best"]].to_dict("records")
    assert (lost[0]["n"], lost[0]["n_diverged"], lost[0]["accuracy_mean"]) == (1, 1, 90.0)


def test_the_best_are_input_of_another_study_once_the_search_is_complete(plan, recorded):
    _, study = search_files(plan.study)
    study.parent.mkdir(parents=True)
    study.write_text("[]")
    er, derpp = [[90.0, 10.0], [60.0, 50.0]], [[70.0, 70.0], [60.0, 50.0]]
    write(recorded(plan, of_trials(plan, er=er)))
    assert best_of(plan, "er") and study.read_text() == "[]"
    write(recorded(plan, of_trials(plan, er=er, derpp=derpp)))
    # the highest mean over seeds, and what was searched for alone
    assert searching.load_best_hyperparameters(str(study), "another") == {
        ("split-cifar10", "er", 500, "class-il"): {"lr": 0.1},
        ("split-cifar10", "derpp", 500, "class-il"): {"alpha": 0.2},
    }


def test_a_cell_whose_trials_all_diverged_has_nothing(plan, recorded):
    records = of_trials(plan, er=[[90.0, 90.0]] * 2, derpp=[[70.0, 70.0]] * 2)
    records |= {run: {"status": "diverged"} for run in records if ".er." in run}
    write(recorded(plan, records))
    study = search_files(plan.study)[1]
    assert {key[1] for key in searching.load_best_hyperparameters(str(study), "x")} == {"derpp"}
    write(recorded(plan, {key: {"status": "diverged"} for key in plan.runs}))
    with pytest.raises(UserError, match="all trials of its search diverged"):
        searching.load_best_hyperparameters(str(study), "x")


@pytest.mark.parametrize("tuned", [True, False])
def test_the_anchor_is_tuned_by_another_study_that_searched_for_it(make_plan, tuned):
    one = {"methods": ["derpp-ewc"], "buffers": [500], "protocols": ["class-il"]}
    cell = {"benchmark": "split-cifar100", "method": "derpp-ewc", "buffer": 500}
    best = {"lr": 0.1} | ({"lambda_ewc": 10.0} if tuned else {})
    cell |= {"protocol": "class-il", "hyperparameters": best}
    Path("best.yaml").write_text(yaml.safe_dump([cell]))
    plan = make_plan([0], **one, benchmarks=["split-cifar100"], best="best.yaml")
    (table,) = plan.tables.values()
    assert [bool(untuned(cell)) for cell in table.cells] == [not tuned]


def test_a_study_that_only_searches_has_a_report_and_a_folder_of_figures(plan, recorded):
    levels = [[70.0, 70.0], [60.0, 50.0]]
    report.write_all(recorded(plan, of_trials(plan, er=levels, derpp=levels)))
    assert report_file(plan.study).exists() and figures_folder(plan.study).is_dir()
    assert carried(search_files(plan.study)[1]) == study_digest(plan)
