"""A search for hyperparameters: what it plans, what is refused, and how another study takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from project import PROJECT

from twf import files
from twf.errors import UserError
from twf.study import Plan, expand, reading
from twf.study.grids import points
from twf.study.methods import METHODS
from twf.study.params import Search

LOADED = reading.load(PROJECT / files.PARAMS)

Values = dict[str, Any]


@pytest.fixture
def values(tiny_values: Values) -> Values:
    """The miniature study, searching for the rate of ER and two weights of DER++."""
    tiny_values["studies"]["tiny"]["experiments"] = {
        "search": {
            "title": "Hyperparameters",
            "benchmarks": ["split-target"],
            "methods": ["er", "derpp"],
            "search": {
                "held_out": 0.25,
                "grids": {
                    "er": {"lr": [0.05, 0.1]},
                    "derpp": {"alpha": [0.1, 0.5], "beta": [0.5, 1.0, 2.0]},
                },
            },
        }
    }
    return tiny_values


def search_of(values: Values) -> Values:
    return values["studies"]["tiny"]["experiments"]["search"]["search"]


def plan(values: Values) -> Plan:
    return expand(reading.check(values), "tiny")


def test_every_combination_of_a_grid_is_a_trial_and_the_rest_stays_as_set(values):
    planned = plan(values)
    assert len(planned.search) == 4  # two methods, two protocols, which share their runs
    assert len(planned.runs) == 2 + 6
    (cell,) = [c for c in planned.search if (c.method, c.protocol) == ("derpp", "class-il")]
    tried = [trial.hyperparameters.model_dump() for trial in cell.trials]
    expected = [
        {"lr": 0.05, "alpha": alpha, "beta": beta} for alpha in (0.1, 0.5) for beta in (0.5, 1, 2)
    ]
    assert tried == expected
    assert cell.as_set.model_dump() == {"lr": 0.05, "alpha": 0.5, "beta": 0.5}
    for trial in cell.trials:
        for seed, run in trial.runs.items():
            assert planned.runs[run].hyperparameters == trial.hyperparameters
            assert planned.runs[run].held_out == 0.25
            assert planned.runs[run].seed == seed
    assert planned.tables == {}


def test_a_trials_name_does_not_change_when_the_grid_grows(values):
    before = plan(values).runs
    search_of(values)["grids"]["er"]["lr"].insert(0, 0.01)
    after = plan(values).runs
    assert set(before) < set(after)
    assert all(after[name].digest == before[name].digest for name in before)


def test_a_run_of_a_search_is_never_that_of_a_table(values):
    values["studies"]["tiny"]["experiments"]["main"] = {
        "title": "Accuracy",
        "benchmarks": ["split-target"],
        "methods": ["er"],
    }
    planned = plan(values)
    (table,) = planned.tables.values()
    shown = {run for cell in table.cells for run in cell.runs.values()}
    assert {planned.runs[run].held_out for run in shown} == {None}


def test_a_limit_draws_always_the_same_points_with_the_set_one_among_them():
    grid = {"lr": [0.1, 0.2, 0.3], "alpha": [float(i) for i in range(10)], "beta": [0.0, 1.0]}
    base = METHODS["derpp"].hyperparameters(lr=0.2, alpha=3.0, beta=1.0)
    search = Search(held_out=0.1, points=7, grids={"derpp": grid})
    drawn = points(search, "derpp", base)
    assert drawn == points(search, "derpp", base)
    assert len({p.text for p in drawn}) == len(drawn) == 7
    assert base in drawn
    assert all(getattr(p, key) in grid[key] for p in drawn for key in grid)


def test_each_grid_of_the_papers_search_has_several_points_and_the_paper_values():
    (experiment,) = LOADED.studies["paper-search"].experiments.values()
    assert experiment.methods == LOADED.studies["paper"].experiments["main"].methods
    planned = expand(LOADED, "paper-search")
    for cell in planned.search:
        grid = experiment.search.grids[cell.method]
        assert all(getattr(cell.as_set, key) in tried for key, tried in grid.items()), cell
        assert len(cell.trials) > 1
        assert cell.as_set in [trial.hyperparameters for trial in cell.trials]
        # the paper leaves these out of its search
        assert not {"batch_size", "epochs"} & set(grid)
    published = {
        (table.benchmark, cell.method, cell.buffer, cell.protocol)
        for table in expand(LOADED, "paper").tables.values()
        if table.experiment == "main"
        for cell in table.cells
    }
    assert {(c.benchmark, c.method, c.buffer, c.protocol) for c in planned.search} == published


BOTH = {"er": {"lr": [0.1]}, "derpp": {"beta": [1.0]}}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"grids": {"er": {"lr": [0.1]}}}, "search.grids: .*derpp"),
        ({"held_out": 1.0}, "search.held_out: "),
        ({"points": 0}, "search.points: "),
        ({"grids": BOTH | {"er": {"lr": [0.0]}}}, r"search.grids.er.lr: .*\(is: 0.0\)"),
        ({"grids": BOTH | {"twf": {"lr": [0.1]}}}, "search.grids: 'twf' is not among methods"),
        ({"grids": BOTH | {"er": {"alpha": [1.0]}}}, "search.grids.er: .*'alpha'; allowed: lr"),
    ],
)
def test_a_mistake_is_refused_with_its_key(values, change, named):
    search_of(values).update(change)
    with pytest.raises(UserError, match=f"studies.tiny.experiments.search.{named}"):
        reading.check(values)


@pytest.fixture
def tuned(tiny_values: Values, tmp_path: Path) -> Values:
    """The miniature study with ER's rate for Task-IL from a file of best hyperparameters."""
    best = tmp_path / "best.yaml"
    place = {"benchmark": "split-target", "method": "er", "buffer": 16, "protocol": "task-il"}
    best.write_text(yaml.safe_dump([place | {"hyperparameters": {"lr": 0.7}}]))
    tiny_values["studies"]["tiny"]["best_hyperparameters"] = str(best)
    return tiny_values


def test_values_that_are_listed_twice_are_one_trial():
    base = METHODS["er"].hyperparameters(lr=0.1)
    search = Search(held_out=0.1, points=2, grids={"er": {"lr": [0.1, 0.1, 0.1]}})
    assert points(search, "er", base) == [base]


def test_what_a_search_did_not_name_is_as_in_params(tuned):
    values = tuned["benchmarks"]["split-target"]["methods"]
    best = Path(tuned["studies"]["tiny"]["best_hyperparameters"])
    place = {"benchmark": "split-target", "method": "derpp", "buffer": 16, "protocol": "class-il"}
    best.write_text(yaml.safe_dump([place | {"hyperparameters": {"lr": 0.7}}]))
    found = plan(tuned).runs["split-target.derpp.16.s0"].hyperparameters
    assert found.lr == 0.7 and found.alpha == values["derpp"]["alpha"]
    (table,) = plan(tuned).tables.values()
    assert next(cell.searched for cell in table.cells if cell.method == "derpp") == ["lr"]


@pytest.mark.parametrize("part", ["hyperparameters", "factors"])
def test_an_unknown_hyperparameter_of_a_search_is_named(tuned, part):
    best = Path(tuned["studies"]["tiny"]["best_hyperparameters"])
    place = {"benchmark": "split-target", "method": "er"}
    if part == "hyperparameters":
        place |= {"buffer": 16, "protocol": "task-il"}
    best.write_text(yaml.safe_dump([place | {part: {"speed": 2.0}}]))
    with pytest.raises(UserError, match=rf"{best}: er has no hyperparameter speed; it has lr"):
        plan(tuned)


def test_a_study_takes_the_best_of_a_search(tuned):
    planned = plan(tuned)
    rates = {name: run.hyperparameters.lr for name, run in planned.runs.items()}
    assert rates["split-target.er.16.task-il.s0"] == 0.7
    assert rates["split-target.er.16.s0"] == 0.05
    assert set(rates.values()) == {0.7, 0.05}


@pytest.mark.parametrize("text", [None, "- {method: er}", "a: [", "{}"])
def test_a_file_that_is_missing_or_holds_no_hyperparameters_is_named(tuned, text):
    best = Path(tuned["studies"]["tiny"]["best_hyperparameters"])
    best.unlink() if text is None else best.write_text(text)
    with pytest.raises(UserError, match=rf"{best}.*{'snakemake' if text is None else ''}"):
        plan(tuned)


def test_a_variants_value_stands_above_the_best_of_a_search(tuned):
    main = tuned["studies"]["tiny"]["experiments"]["main"]
    fast = {"title": "Fast", "hyperparameters": {"lr": 0.9}}
    main |= {"methods": ["er"], "variants": {"fast": fast}}
    assert {run.hyperparameters.lr for run in plan(tuned).runs.values()} == {0.9}


@pytest.fixture
def factors(values: Values) -> Values:
    """A search for a factor of both methods' rates."""
    experiment = values["studies"]["tiny"]["experiments"]["search"]
    experiment |= {"protocols": ["class-il"], "buffers": [16]}
    experiment["search"] = {"held_out": 0.25, "factors": {"lr": [0.333333, 1.0, 3.0]}}
    return values


def test_factors_multiply_what_each_method_has(factors):
    factors["benchmarks"]["split-target"]["methods"]["er"]["lr"] = 0.1
    tried = {
        cell.method: [trial.hyperparameters.lr for trial in cell.trials]
        for cell in plan(factors).search
    }
    assert tried == {"er": [0.03333, 0.1, 0.3], "derpp": [0.01667, 0.05, 0.15]}


@pytest.mark.parametrize(
    "change",
    [
        {"search": {"held_out": 0.25, "factors": {"rate": [1.0]}}},
        {"search": {"held_out": 0.25, "factors": {"lr": [0.0]}}},
        {"search": {"held_out": 0.25, "factors": {"alpha": [1.0]}}},  # ER has none
        {"search": {"held_out": 0.25, "factors": {"lr": [1.0]}, "grids": {"er": {"lr": [1.0]}}}},
        {"protocols": ["class-il", "task-il"]},  # which of them would decide?
        {"buffers": None},
        {"variants": {"a": {"title": "A"}}},  # of a search
        {"probes": True},
    ],
)
def test_factors_that_cannot_be_are_refused(factors, change):
    factors["studies"]["tiny"]["experiments"]["search"] |= change
    with pytest.raises(UserError, match="studies.tiny.experiments.search.search"):
        reading.check(factors)


def test_a_factor_that_gives_no_possible_value_is_refused(factors):
    experiment = factors["studies"]["tiny"]["experiments"]["search"]
    experiment |= {"methods": ["co2l"], "search": {"held_out": 0.25, "factors": {"chunks": [0.5]}}}
    with pytest.raises(UserError, match=r"co2l: chunks: .*integer.*\(is: 1.0\)"):
        plan(factors)


def test_a_factor_holds_for_all_cells_of_its_method(tiny_values, tmp_path):
    best = tmp_path / "best.yaml"
    found = {"benchmark": "split-target", "method": "er", "factors": {"lr": 3.0}}
    best.write_text(yaml.safe_dump([found]))
    tiny_values["studies"]["tiny"]["best_hyperparameters"] = str(best)
    er = tiny_values["benchmarks"]["split-target"]["methods"]["er"]
    er["overrides"] = [{"protocol": "task-il", "lr": 0.01}]
    rates = {name: run.hyperparameters.lr for name, run in plan(tiny_values).runs.items()}
    assert rates.pop("split-target.er.16.s0") == 0.15
    assert rates.pop("split-target.er.16.task-il.s0") == 0.03
    assert set(rates.values()) == {0.05}
