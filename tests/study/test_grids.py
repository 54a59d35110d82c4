"""A search for hyperparameters: what it plans, what is refused, and how another study takes it."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import PROJECT

from twf import files
from twf.errors import UserError
from twf.study import Plan, expand, reading
from twf.study.expansion import points
from twf.study.methods import METHODS
from twf.study.params import Search
from twf.study.products import study_values

LOADED = reading.load(PROJECT / files.PARAMS)

Values = dict[str, Any]


@pytest.fixture
def values(tiny_values: Values) -> Values:
    """The miniature study, searching for the rate of ER and two weights of DER++."""
    grids = {"er": {"lr": [0.05, 0.1]}, "derpp": {"alpha": [0.1, 0.5], "beta": [0.5, 1.0, 2.0]}}
    search = {"title": "Hyperparameters", "benchmarks": ["split-target"], "methods": list(grids)}
    search |= {"search": {"held_out": 0.25, "grids": grids}}
    tiny_values["studies"]["tiny"]["experiments"] = {"search": search}
    return tiny_values


def search_of(values: Values) -> Values:
    return values["studies"]["tiny"]["experiments"]["search"]["search"]


def plan(values: Values) -> Plan:
    return expand(reading.check(values), "tiny")


def test_every_combination_of_a_grid_is_a_trial_and_the_rest_stays_as_set(values):
    main = {"title": "Accuracy", "benchmarks": ["split-target"], "methods": ["er"]}
    values["studies"]["tiny"]["experiments"]["main"] = main
    planned = plan(values)
    assert len(planned.search) == 4  # two methods, two protocols, which share their runs
    assert len(planned.runs) == 2 + 6 + 1
    (cell,) = [c for c in planned.search if (c.method, c.protocol) == ("derpp", "class-il")]
    tried = [trial.hyperparameters.model_dump() for trial in cell.trials]
    assert tried == [
        {"lr": 0.05, "alpha": alpha, "beta": beta} for alpha in (0.1, 0.5) for beta in (0.5, 1, 2)
    ]
    assert cell.as_set.model_dump() == {"lr": 0.05, "alpha": 0.5, "beta": 0.5}
    for trial in cell.trials:
        for seed, name in trial.runs.items():
            run = planned.runs[name]
            assert (run.hyperparameters, run.held_out) == (trial.hyperparameters, 0.25)
            assert run.seed == seed
    (table,) = planned.tables.values()
    shown = {run for cell in table.cells for run in cell.runs.values()}
    assert {planned.runs[run].held_out for run in shown} == {None}, "a search's run is in no table"


def test_a_trials_name_does_not_change_when_the_grid_grows(values):
    before = plan(values).runs
    search_of(values)["grids"]["er"]["lr"].insert(0, 0.01)
    after = plan(values).runs
    assert set(before) < set(after)
    assert all(after[name].digest == before[name].digest for name in before)


def test_a_limit_draws_always_the_same_points_each_once_with_the_set_one_among_them():
    grid = {"lr": [0.1, 0.2, 0.3], "alpha": [float(i) for i in range(10)], "beta": [0.0, 1.0]}
    base = METHODS["derpp"].hyperparameters(lr=0.1, alpha=3.0, beta=1.0)
    search = Search(held_out=0.1, points=7, grids={"derpp": grid})
    drawn = points(search, "derpp", base, "")
    assert drawn == points(search, "derpp", base, "")
    assert len({p.text for p in drawn}) == len(drawn) == 7
    assert base in drawn
    assert all(getattr(p, key) in grid[key] for p in drawn for key in grid)


def test_each_grid_of_the_papers_search_has_several_points_and_the_paper_values():
    (experiment,) = LOADED.studies["paper-search"].experiments.values()
    planned = expand(LOADED, "paper-search")
    for cell in planned.search:
        grid = experiment.search.grids[cell.method]
        assert all(getattr(cell.as_set, key) in tried for key, tried in grid.items()), cell
        assert len(cell.trials) > 1
        assert cell.as_set in [trial.hyperparameters for trial in cell.trials]
        # the paper leaves these out of its search
        assert not {"batch_size", "epochs"} & set(grid)


TUNED = "split-target.derpp.16.task-il.s0"


@pytest.fixture
def best(tiny_values: Values, tmp_path: Path) -> Callable[..., Path]:
    """`best(method, protocol, **values)`: the miniature study takes these of a search's file."""

    def write(method: str, protocol: str, **values: float) -> Path:
        path = tmp_path / "best.yaml"
        cell = {"benchmark": "split-target", "method": method, "buffer": 16, "protocol": protocol}
        path.write_text(yaml.safe_dump([cell | {"hyperparameters": values}]))
        tiny_values["studies"]["tiny"]["best_hyperparameters"] = str(path)
        return path

    return write


def test_a_study_takes_the_best_of_a_search_and_the_rest_from_params(tiny_values, best):
    """And a variant's value before either."""
    best("derpp", "task-il", lr=0.7)
    planned = plan(tiny_values)
    rates = {name: run.hyperparameters.lr for name, run in planned.runs.items() if name != TUNED}
    assert set(rates.values()) == {0.05}
    tuned = planned.runs[TUNED].hyperparameters
    assert tuned.lr == 0.7
    assert tuned.alpha == tiny_values["benchmarks"]["split-target"]["methods"]["derpp"]["alpha"]
    (table,) = planned.tables.values()
    searched = {cell.protocol: cell.searched for cell in table.cells if cell.method == "derpp"}
    assert searched == {"class-il": [], "task-il": ["lr"]}
    fast = {"title": "Fast", "hyperparameters": {"lr": 0.9}}
    tiny_values["studies"]["tiny"]["experiments"]["main"]["variants"] = {"fast": fast}
    assert {run.hyperparameters.lr for run in plan(tiny_values).runs.values()} == {0.9}


def test_an_override_may_be_for_a_buffer_of_an_experiment_alone(tiny_values):
    override = {"buffer": 24, "lr": 0.7}
    tiny_values["benchmarks"]["split-target"]["methods"]["er"]["overrides"] = [override]
    with pytest.raises(UserError, match="buffer 24, which it never has"):
        plan(tiny_values)
    studies = tiny_values["studies"]
    studies["other"] = copy.deepcopy(studies["tiny"])
    studies["other"]["experiments"]["main"]["buffers"] = [24]
    loaded = reading.check(tiny_values)
    runs = expand(loaded, "other").runs.values()
    assert {run.hyperparameters.lr for run in runs if run.method == "er"} == {0.7}
    # the plan file of a study stands alone, whatever others have
    alone = reading.check(study_values(loaded, expand(loaded, "tiny")))
    assert expand(alone, "tiny").runs == expand(loaded, "tiny").runs


def test_the_best_may_be_of_a_benchmark_that_the_study_does_not_run(tiny_values, best):
    tiny_values["benchmarks"]["other"] = tiny_values["benchmarks"]["split-target"]
    path = best("derpp", "task-il", lr=0.7)
    path.write_text(path.read_text().replace("split-target", "other"))
    loaded = reading.check(tiny_values)
    alone = reading.check(study_values(loaded, expand(loaded, "tiny")))
    assert expand(alone, "tiny").runs == expand(loaded, "tiny").runs


def test_a_cell_that_stands_twice_among_the_best_is_refused(tiny_values, best):
    path = best("derpp", "task-il", lr=0.7)
    path.write_text(path.read_text() + path.read_text().replace("0.7", "0.5"))
    with pytest.raises(UserError, match=f"{path} has derpp on split-target twice"):
        plan(tiny_values)


@pytest.mark.parametrize("text", [None, "- {method: er}", "a: [", "{}", "[]"])
def test_a_file_that_is_missing_or_holds_no_hyperparameters_is_named(tiny_values, best, text):
    path = best("er", "task-il", lr=0.7)
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UserError, match=rf"{path}.*{'not there' if text is None else ''}"):
        plan(tiny_values)


def test_a_study_is_not_tuned_by_its_own_search(tiny_values):
    own = "results/tiny/tables/best-hyperparameters.yaml"
    tiny_values["studies"]["tiny"]["best_hyperparameters"] = own
    with pytest.raises(UserError, match=f"{own} is of its own search.* another study"):
        plan(tiny_values)


def test_an_unknown_hyperparameter_of_a_search_is_named_with_the_file(tiny_values, best):
    path = best("er", "task-il", speed=2.0)
    with pytest.raises(UserError, match=rf"{path}: unknown key 'speed'; allowed: lr"):
        plan(tiny_values)
