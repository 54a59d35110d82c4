"""The runs and tables that a study stands for, and what decides that two runs are one."""

from __future__ import annotations

import copy
import csv
import re
from collections import Counter
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from project import PROJECT

from twf import files
from twf.errors import UserError
from twf.study import Plan, expand, params, reading
from twf.study.methods import METHODS

LOADED = reading.load(PROJECT / files.PARAMS)
FIVE = ["joint", "finetune", "er", "derpp", "twf"]

Values = dict[str, Any]


def plan(values: Values, name: str = "tiny") -> Plan:
    return expand(reading.check(values), name)


@pytest.fixture
def values(tiny_values: Values) -> Values:
    """The miniature study of Joint and ER alone."""
    tiny_values["studies"]["tiny"]["experiments"]["main"]["methods"] = ["joint", "er"]
    return tiny_values


def er(values: Values) -> Values:
    return values["benchmarks"]["split-target"]["methods"]["er"]


def experiments(values: Values) -> Values:
    return values["studies"]["tiny"]["experiments"]


def test_identifiers_say_benchmark_method_buffer_and_seed(values):
    values["benchmarks"]["split-target"]["buffers"] = [16, 32]
    values["studies"]["tiny"]["seeds"] = [0, 7]
    assert list(plan(values).runs) == [
        "split-target.joint.s0",
        "split-target.joint.s7",
        "split-target.er.16.s0",
        "split-target.er.16.s7",
        "split-target.er.32.s0",
        "split-target.er.32.s7",
    ]


def test_one_experiment_has_its_own_runs_as_the_whole_study_names_and_probes_them(values):
    experiments(values)["more"] = experiments(values)["main"] | {
        "methods": ["er", "twf"],
        "variants": {"base": {"title": "base"}},
        "probes": True,
    }
    experiments(values)["search"] = experiments(values)["main"] | {
        "methods": ["er"],
        "search": {"held_out": 0.25, "grids": {"er": {"lr": [0.02, 0.03]}}},
    }
    whole = plan(values)
    main, more, search = (whole.only(name) for name in ("main", "more", "search"))
    er_run, twf_run = "split-target.er.16.s0", "split-target.twf.16.s0"
    assert list(more.runs) == [er_run, twf_run]
    assert main.runs[er_run] == more.runs[er_run] and main.runs[er_run].probes
    assert list(more.tables) == ["more.split-target"] and more.search == []
    assert search.tables == {} and list(search.runs) == whole.runs_of_searches()
    assert {**main.runs, **more.runs, **search.runs} == whole.runs
    with pytest.raises(UserError, match="'most' in study tiny; there is main, more, search"):
        whole.only("most")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("split-target.err.16.s0", " (did you mean 'split-target.er.16.s0'?)"),
        ("split-target.er.16.s1", " (did you mean 'split-target.er.16.s0'?)"),
        ("x", ""),
    ],
)
def test_an_unknown_run_is_answered_with_the_one_most_like_it(values, name, said):
    listed = f"no run {name!r} in study tiny{said}; `twf plan tiny` lists its runs"
    with pytest.raises(UserError, match=f"^{re.escape(listed)}$"):
        plan(values).named_run(name)


def test_a_table_needs_the_trials_that_say_whether_its_cells_are_tuned(values):
    experiments(values)["main"]["methods"] = ["er", "derpp-ewc"]
    grids = {"er": {"lr": [0.02, 0.03]}, "derpp-ewc": {"lambda_ewc": [1.0, 2.0]}}
    experiments(values)["search"] = experiments(values)["main"] | {
        "search": {"held_out": 0.25, "grids": grids}
    }
    whole = plan(values)
    needed = whole.runs_of(whole.tables["main.split-target"])
    trials = [run for run in whole.runs_of_searches() if "derpp-ewc" in run]
    assert len(trials) == 2
    assert needed == ["split-target.er.16.s0", "split-target.derpp-ewc.16.s0", *trials]


def test_task_il_has_a_run_of_its_own_only_where_its_hyperparameters_differ(values):
    values["benchmarks"]["split-target"]["buffers"] = [16, 32]
    er(values)["overrides"] = [{"buffer": 32, "protocol": "task-il", "lr": 0.2}]
    planned = plan(values)
    cells = planned.tables["main.split-target"].cells
    assert [(c.method, c.buffer, c.protocol, c.runs[0]) for c in cells] == [
        ("joint", None, "class-il", "split-target.joint.s0"),
        ("joint", None, "task-il", "split-target.joint.s0"),
        ("er", 16, "class-il", "split-target.er.16.s0"),
        ("er", 16, "task-il", "split-target.er.16.s0"),
        ("er", 32, "class-il", "split-target.er.32.s0"),
        ("er", 32, "task-il", "split-target.er.32.task-il.s0"),
    ]
    assert set(planned.runs) == {cell.runs[0] for cell in cells}
    assert planned.runs["split-target.er.32.s0"].hyperparameters.lr == 0.05
    assert planned.runs["split-target.er.32.task-il.s0"].hyperparameters.lr == 0.2


@pytest.mark.parametrize("protocol", ["class-il", "task-il"])
def test_class_ils_run_keeps_its_name_when_either_protocol_changes(values, protocol):
    before = plan(values).runs["split-target.er.16.s0"]
    er(values)["overrides"] = [{"protocol": protocol, "lr": 0.2}]
    runs = plan(values).runs
    same = "er.16.s0" if protocol == "task-il" else "er.16.task-il.s0"
    assert runs[f"split-target.{same}"].digest == before.digest


def test_experiments_share_the_runs_that_both_need(values):
    again = experiments(values)["main"] | {"title": "Again", "methods": ["er", "finetune"]}
    experiments(values)["again"] = again | {"seeds": [0, 1]}
    planned = plan(values)
    assert list(planned.tables) == ["main.split-target", "again.split-target"]
    assert sorted(planned.runs) == [
        "split-target.er.16.s0",
        "split-target.er.16.s1",
        "split-target.finetune.s0",
        "split-target.finetune.s1",
        "split-target.joint.s0",
    ]
    cells = planned.tables["again.split-target"].cells
    assert cells[0].runs == {0: "split-target.er.16.s0", 1: "split-target.er.16.s1"}


def test_runs_of_one_name_say_in_what_they_differ(values):
    """Here not in a variant: two searches hold out different shares."""
    main = experiments(values)["main"]
    search = {"grids": {"er": {"lr": [0.1, 0.2]}}}
    for name, share in (("one", 0.1), ("two", 0.2)):
        protocol = {"one": "class-il", "two": "task-il"}[name]
        more = {"methods": ["er"], "search": search | {"held_out": share}}
        experiments(values)[name] = main | more | {"protocols": [protocol]}
    with pytest.raises(UserError, match="both called .*trial.* and differ in held_out"):
        plan(values)


def test_two_runs_of_one_name_and_seed_are_refused(values):
    """Else a mean would be over both, or over the first."""
    values["sources"]["narrow"] = values["sources"]["origin"]
    main = experiments(values)["main"]
    experiments(values)["wide"] = main | {"source": "origin"}
    plan(values)
    values["studies"]["tiny"]["scale"] = {"split-target": {"source": "narrow", "epochs": 1}}
    with pytest.raises(UserError, match=r"er.* on split-target is .* in main and .* in wide"):
        plan(values)


def test_a_variant_of_one_name_cannot_change_something_in_one_experiment_alone(values):
    main = experiments(values)["main"] | {"methods": ["er"]}
    experiments(values)["one"] = main | {"variants": {"high": {"title": "as set"}}}
    changed = {"title": "higher", "hyperparameters": {"lr": 0.7}}
    experiments(values)["two"] = main | {"variants": {"higher": changed}}
    plan(values)
    experiments(values)["two"] = main | {"variants": {"high": changed}}
    with pytest.raises(UserError, match="in one and .* in two"):
        plan(values)


def test_another_source_is_in_the_identifier_and_the_benchmarks_own_is_not(values):
    values["sources"]["other"] = values["sources"]["origin"]
    main = experiments(values).pop("main")
    experiments(values)["named"] = main | {"source": "origin"}
    experiments(values)["main"] = main
    experiments(values)["dissimilar"] = main | {"source": "other"}
    er(values)["overrides"] = [{"protocol": "task-il", "lr": 0.2}]
    planned = plan(values)
    assert set(planned.runs) == {
        "split-target.joint.s0",
        "split-target.er.16.s0",
        "split-target.er.16.task-il.s0",
        "split-target.joint.from-other.s0",
        "split-target.er.16.from-other.s0",
        "split-target.er.16.from-other.task-il.s0",
    }
    assert planned.runs["split-target.er.16.from-other.s0"].source == "other"
    assert planned.sources == ["origin", "other"]
    assert [t.source for t in planned.tables.values()] == ["origin", "origin", "other"]


def test_the_demo_searches_for_what_the_paper_does_not_print():
    planned = expand(LOADED, "demo")
    searched = {(c.benchmark, c.method, c.buffer, c.protocol): c for c in planned.search}
    anchored = 0
    for table in planned.tables.values():
        for cell in table.cells:
            if (name := METHODS[cell.method].not_printed) is not None:
                found = searched[table.benchmark, cell.method, cell.buffer, cell.protocol]
                tried = {getattr(trial.hyperparameters, name) for trial in found.trials}
                assert getattr(found.as_set, name) in tried and len(tried) > 1
                anchored += 1
    assert anchored == 2


def test_a_run_carries_everything_of_its_cell(values):
    values["benchmarks"]["split-target"]["lr_decay"] = {"factor": 0.1, "epochs": [1]}
    run = plan(values).runs["split-target.er.16.s0"]
    assert (run.id, run.study) == ("split-target.er.16.s0", "tiny")
    assert run.values == {
        "benchmark": "split-target",
        "data": "target",
        "classes": 4,
        "tasks": 2,
        "source": "origin",
        "network": {"architecture": "resnet18", "width": 4},
        "augmentation": {
            "padding": 2,
            "flip": True,
            "mean": [0.5, 0.5, 0.5],
            "std": [0.25, 0.25, 0.25],
        },
        "method": "er",
        "buffer": 16,
        "pretrained": True,
        "probes": False,
        "source_data": None,
        "source_augmentation": None,
        "fidelity": {},
        "hyperparameters": {"lr": 0.05},
        "epochs": 2,
        "batch_size": 8,
        "lr_decay": {"factor": 0.1, "epochs": [1]},
        "precision": "tf32",
        "held_out": None,
        "seed": 0,
    }


def digest(values: Values, name: str = "tiny") -> str:
    (run,) = [run for run in plan(values, name).runs.values() if run.method == "er"]
    return run.digest


# Changes by key, and whether they decide the result.
CHANGES: list[tuple[str, Any, bool]] = [
    ("benchmarks.split-target.epochs", 3, True),
    ("benchmarks.split-target.batch_size", 4, True),
    ("benchmarks.split-target.tasks", 4, True),
    ("benchmarks.split-target.buffers", [8], True),
    ("benchmarks.split-target.lr_decay", {"factor": 0.1, "epochs": [1]}, True),
    ("benchmarks.split-target.methods.er.lr", 0.06, True),
    ("datasets.target.augmentation.padding", 4, True),
    ("datasets.target.augmentation.flip", False, True),
    ("datasets.target.augmentation.mean", [0.5, 0.5, 0.4], True),
    ("datasets.target.augmentation.std", [0.5, 0.5, 0.5], True),
    ("sources.origin.network.width", 8, True),
    ("sources.origin.network.architecture", "resnet50", True),
    ("studies.tiny.seeds", [1], True),
    ("tracking", {"mode": "online", "project": "other", "entity": "me"}, False),
    ("studies.tiny.title", "Another title", False),
    ("studies.tiny.experiments.main.title", "Another title", False),
    ("studies.tiny.experiments.main.methods", ["er"], False),
    ("benchmarks.split-target.title", "Another title", False),
    ("benchmarks.split-target.methods.joint.lr", 0.9, False),
    ("datasets.target.title", "Another title", False),
    ("datasets.origin.augmentation.padding", 4, False),
]


@pytest.mark.parametrize(
    ("path", "value", "decides"), CHANGES, ids=[f"{path}-{decides}" for path, _, decides in CHANGES]
)
def test_the_digest_changes_with_what_decides_the_result_alone(values, path, value, decides):
    before = digest(values)
    *parents, last = path.split(".")
    reduce(getitem, parents, values)[last] = value
    assert (digest(values) != before) == decides


def test_the_digest_does_not_depend_on_the_study_or_experiment_that_asks(values):
    values["studies"]["other"] = copy.deepcopy(values["studies"]["tiny"])
    mains = values["studies"]["other"]["experiments"]
    mains["called-otherwise"] = mains.pop("main")
    assert digest(values) == digest(values, "other")


def test_writing_a_whole_number_without_its_point_is_no_change(values):
    er(values)["lr"] = 1.0
    before = digest(values)
    er(values)["lr"] = 1
    assert digest(values) == before


@settings(max_examples=30)
@given(st.data())
def test_cells_name_exactly_the_runs_with_their_own_parameters(data):
    """Whatever the overrides: each cell's run has its hyperparameters, and no run is left over."""
    rates = st.sampled_from([0.1, 0.2])
    override = st.fixed_dictionaries(
        {"lr": rates},
        optional={
            "buffer": st.sampled_from([500, 2000]),
            "protocol": st.sampled_from(params.PROTOCOLS),
        },
    )
    values = LOADED.model_dump(exclude_none=True)
    methods = values["benchmarks"]["split-cifar100"]["methods"]
    for method in ("er", "finetune"):
        methods[method] = {"lr": 0.1, "overrides": data.draw(st.lists(override, max_size=4))}
    main = {"title": "", "benchmarks": ["split-cifar100"], "methods": ["finetune", "er"]}
    values["studies"]["paper"]["experiments"] = {"main": main}
    checked = reading.check(values)
    planned = expand(checked, "paper")
    benchmark = checked.benchmarks["split-cifar100"]
    used = set()
    for cell in planned.tables["main.split-cifar100"].cells:
        run = planned.runs[cell.runs[0]]
        expected = benchmark.hyperparameters(cell.method, cell.buffer, cell.protocol)
        assert run.hyperparameters == expected
        assert (run.method, run.buffer, run.seed) == (cell.method, cell.buffer, 0)
        used.add(run.id)
    assert used == set(planned.runs)
    assert len({run.parameters for run in planned.runs.values()}) == len(planned.runs)
    assert all(key == run.id for key, run in planned.runs.items())


def printed_runs() -> Counter[tuple[str, str]]:
    """The paper's distinct runs by benchmark and method, from its printed hyperparameters alone.

    A cell's parameters are its method's rows; cells of one buffer that agree in all are one run.
    """
    cells: dict[tuple[str, str, str, str], set[tuple[str, str]]] = {}
    with (PROJECT / "tests/hyperparameters.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["method"] != "shared":
                cell = (row["benchmark"], row["method"], row["buffer_size"], row["protocol"])
                cells.setdefault(cell, set()).add((row["hyperparameter"], row["value"]))
    distinct = {
        (name, method, buffer, frozenset(v)) for (name, method, buffer, _), v in cells.items()
    }
    return Counter((name, method) for name, method, _, _ in distinct)


def test_the_papers_tables_have_the_runs_of_its_printed_hyperparameters():
    printed = printed_runs()
    assert sum(printed.values()) == 59  # the distinct runs of Tables 1 to 3
    assert sum(n for (_, method), n in printed.items() if method in FIVE) == 31
    planned = expand(LOADED, "paper")
    first_seed = LOADED.studies["paper"].seeds[0]
    shown = {
        cell.runs[first_seed]
        for table in planned.tables.values()
        if table.experiment == "main"
        for cell in table.cells
    }
    runs = Counter((planned.runs[run].benchmark, planned.runs[run].method) for run in shown)
    assert runs == Counter({key: n for key, n in printed.items() if key[1] in METHODS})


def test_the_demo_has_no_run_that_no_table_shows():
    planned = expand(LOADED, "demo")
    cells = [cell for table in planned.tables.values() for cell in table.cells]
    trials = [trial for cell in planned.search for trial in cell.trials]
    shown = {run for made in (*cells, *trials) for run in made.runs.values()}
    assert shown == set(planned.runs)


@pytest.mark.parametrize(
    ("name", "shares"), [("demo", [0.0, 0.5]), ("paper", [0.0, 0.1, 0.25, 0.5, 0.75])]
)
def test_pretraining_images_have_a_control_with_their_head_and_none_of_them(name, shares):
    runs = expand(LOADED, name).runs.values()
    of_images = [run for run in runs if run.method == "derpp-pretraining"]
    values = [run.hyperparameters.model_dump() for run in of_images]
    assert sorted(v.pop("share") for v in values) == shares
    assert all(v == values[0] for v in values)
    assert len({(run.buffer, run.source, run.seed) for run in of_images}) == 1


@pytest.mark.parametrize("name", ["demo", "corners", "paper", "paper-search"])
def test_no_run_propagates_features_without_mask_replay(name):
    """There, published code and ours would part, without a switch: docs/fidelity.md."""
    runs = [run for run in expand(LOADED, name).runs.values() if run.method == "twf"]
    propagating = [run.hyperparameters for run in runs if run.hyperparameters.lambda_fp > 0]
    assert propagating
    assert all(found.lambda_fp_replay > 0 for found in propagating)


def test_f9_is_the_rate_of_one_cell(values):
    """The later lambda_FP, on Split CIFAR-10 with buffer 500 alone."""
    changed = LOADED.model_copy(update={"fidelity": LOADED.fidelity | {"F9": "published"}})
    before, after = expand(LOADED, "paper").runs, expand(changed, "paper").runs
    assert before["split-cifar10.twf.500.s0"].hyperparameters.lambda_fp == 0.005
    assert after["split-cifar10.twf.500.s0"].hyperparameters.lambda_fp == 0.0005
    main = [n for n in before if n in after and len(n.split(".")) <= 4]
    assert [n for n in main if before[n].digest != after[n].digest] == ["split-cifar10.twf.500.s0"]


def test_a_study_sets_switches_and_a_variant_sets_them_after_it(tiny_values):
    study = tiny_values["studies"]["tiny"]
    study["experiments"]["main"]["methods"] = ["twf"]
    study["fidelity"] = {"F6": "paper", "F7": "paper", "F8": "paper"}
    study["experiments"]["main"]["variants"] = {
        "as-set": {"title": ""},
        "f7": {"title": "", "fidelity": {"F7": "published"}},
    }
    planned = plan(tiny_values)
    asked = {
        ("f7" in name, run.fidelity["F6"], run.fidelity["F7"]) for name, run in planned.runs.items()
    }
    assert asked == {(False, "paper", "paper"), (True, "paper", "published")}
    assert {table.forgetting for table in planned.tables.values()} == {"paper"}


def test_a_study_scales_a_benchmark_down_and_leaves_it_its_name(values):
    values["sources"]["small"] = copy.deepcopy(values["sources"]["origin"])
    values["sources"]["small"]["network"]["width"] = 2
    decay = {"factor": 0.1, "epochs": [1]}
    scale = {"epochs": 1, "source": "small", "lr_decay": decay, "buffers": [8]}
    values["studies"]["tiny"]["scale"] = {"split-target": scale}
    planned = plan(values)
    assert {run.buffer for run in planned.runs.values()} == {None, 8}
    run = planned.runs["split-target.er.8.s0"]
    assert (run.epochs, run.source, run.network.width) == (1, "small", 2)
    assert run.lr_decay is not None and run.lr_decay.epochs == [1]
    assert {table.source for table in planned.tables.values()} == {"small"}
