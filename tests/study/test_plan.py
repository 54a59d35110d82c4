"""The runs and tables that a study stands for, and what decides that two runs are one."""

import copy
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import PROJECT

from twf import files
from twf.errors import UserError
from twf.study import Plan, expand, params, reading

LOADED = reading.load(PROJECT / files.PARAMS)

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


def test_task_il_has_a_run_of_its_own_only_where_its_hyperparameters_differ(values):
    """And identifiers say benchmark, method, buffer and seed."""
    values["benchmarks"]["split-target"]["buffers"] = [16, 32]
    values["studies"]["tiny"]["seeds"] = [7]
    er(values)["overrides"] = [{"buffer": 32, "protocol": "task-il", "lr": 0.2}]
    planned = plan(values)
    cells = planned.tables["main.split-target"].cells
    assert [(c.method, c.buffer, c.protocol, c.runs[7]) for c in cells] == [
        ("joint", None, "class-il", "split-target.joint.s7"),
        ("joint", None, "task-il", "split-target.joint.s7"),
        ("er", 16, "class-il", "split-target.er.16.s7"),
        ("er", 16, "task-il", "split-target.er.16.s7"),
        ("er", 32, "class-il", "split-target.er.32.s7"),
        ("er", 32, "task-il", "split-target.er.32.task-il.s7"),
    ]
    assert set(planned.runs) == {cell.runs[7] for cell in cells}
    assert planned.runs["split-target.er.32.s7"].hyperparameters.lr == 0.05
    assert planned.runs["split-target.er.32.task-il.s7"].hyperparameters.lr == 0.2
    experiments(values)["main"]["protocols"] = ["task-il"]  # whatever else is asked for
    assert set(plan(values).runs) == {c.runs[7] for c in cells if c.protocol == "task-il"}


def two_shares(values: Values) -> None:
    """Two searches hold out different shares, for one protocol each."""
    main = experiments(values)["main"] | {"methods": ["er"]}
    for name, share, protocol in (("one", 0.1, "class-il"), ("two", 0.2, "task-il")):
        search = {"grids": {"er": {"lr": [0.1, 0.2]}}, "held_out": share}
        experiments(values)[name] = main | {"protocols": [protocol], "search": search}


def two_variants(values: Values) -> None:
    """A variant of one name changes something in one experiment."""
    main = experiments(values)["main"] | {"methods": ["er"]}
    experiments(values)["one"] = main | {"variants": {"high": {"title": "as set"}}}
    changed = {"title": "higher", "hyperparameters": {"lr": 0.7}}
    experiments(values)["two"] = main | {"variants": {"higher": changed}}
    plan(values)
    experiments(values)["two"] = main | {"variants": {"high": changed}}


def two_searches(values: Values) -> None:
    """Two experiments search for one cell, of which another study takes the best."""
    search = {"grids": {"er": {"lr": [0.1, 0.2]}}, "held_out": 0.1}
    main = experiments(values)["main"] | {"methods": ["er"], "search": search}
    variant = {"f6": {"title": "B", "hyperparameters": {"lr": 0.3}}}
    experiments(values).update(one=main, two=main | {"variants": variant})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (two_searches, "one and two both have a search for er.16.class-il on split-target"),
        (two_shares, "one and two both have .*trial"),
        (two_variants, "one and two both have er.high.* on split-target"),
    ],
)
def test_two_runs_for_one_number_are_refused(values, change, named):
    """Else a mean would be over both, or over the first."""
    change(values)
    with pytest.raises(UserError, match=named):
        plan(values)


def test_another_source_is_in_the_identifier_and_the_benchmarks_own_is_not(values):
    values["sources"]["other"] = values["sources"]["origin"]
    main = experiments(values).pop("main")
    experiments(values)["named"] = main | {"source": "origin"}
    experiments(values)["main"] = main
    experiments(values)["dissimilar"] = main | {"source": "other"}
    er(values)["overrides"] = [{"protocol": "task-il", "lr": 0.2}]
    planned = plan(values)
    own = ["joint", "er.16", "er.16.task-il"]
    others = ["joint.from-other", "er.16.from-other", "er.16.from-other.task-il"]
    assert set(planned.runs) == {f"split-target.{name}.s0" for name in own + others}
    assert planned.runs["split-target.er.16.from-other.s0"].source == "other"
    assert planned.sources == ["origin", "other"]
    assert [t.source for t in planned.tables.values()] == ["origin", "origin", "other"]


def test_a_variant_is_also_run_without_a_buffer_by_the_methods_that_can(values):
    values["benchmarks"]["split-target"]["buffers"] = [32, 16]
    variants = {"all": {"title": "All", "without_buffer": True}}
    experiments(values)["main"] |= {"methods": ["joint", "er", "er-ace"], "variants": variants}
    (table,) = plan(values).tables.values()
    assert table.buffers == [None, 16, 32]
    cells = {(cell.method, cell.buffer) for cell in table.cells}
    able = {("er", None), ("er", 16), ("er", 32)}
    assert cells == {("joint", None), *able, ("er-ace", 16), ("er-ace", 32)}


def test_a_study_scales_a_benchmark_down_and_leaves_it_its_name(values):
    values["sources"]["small"] = copy.deepcopy(values["sources"]["origin"])
    values["sources"]["small"]["network"]["width"] = 8
    decay = {"factor": 0.1, "epochs": [1]}
    scale = {"epochs": 3, "source": "small", "lr_decay": decay, "buffers": [8]}
    values["studies"]["tiny"]["scale"] = {"split-target": scale}
    planned = plan(values)
    assert {run.buffer for run in planned.runs.values()} == {None, 8}
    run = planned.runs["split-target.er.8.s0"]
    assert (run.epochs, run.source, run.network.width) == (3, "small", 8)
    assert run.lr_decay is not None and run.lr_decay.epochs == [1]
    (table,) = planned.tables.values()
    assert (table.source, table.paper_source, table.reduced) == ("small", "origin", True)


def test_a_run_is_probed_where_one_of_the_experiments_that_share_it_asks(values):
    experiments(values)["probed"] = experiments(values)["main"] | {
        "methods": ["er"],
        "probes": True,
    }
    probes = {name: run.probes for name, run in plan(values).runs.items()}
    assert probes == {"split-target.joint.s0": False, "split-target.er.16.s0": True}


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


def test_who_needs_the_sources_images_is_refused_where_there_are_none(tiny_values):
    tiny_values["sources"]["origin"] = {"network": {"architecture": "resnet18"}, "weights": "w.pth"}
    with pytest.raises(UserError, match="derpp-ewc needs the images of origin"):
        plan(tiny_values)


# Changes by key, and whether they decide the result.
CHANGES: list[tuple[str, Any, bool]] = [
    ("benchmarks.split-target.epochs", 3, True),
    ("benchmarks.split-target.batch_size", 4, True),
    ("benchmarks.split-target.tasks", 4, True),
    ("benchmarks.split-target.buffers", [8], True),
    ("benchmarks.split-target.lr_decay", {"factor": 0.1, "epochs": [1]}, True),
    ("benchmarks.split-target.methods.er.lr", 0.06, True),
    ("datasets.target.augmentation.padding", 4, True),
    ("sources.origin.network.width", 8, True),
    ("studies.tiny.seeds", [1], True),
    ("studies.tiny.precision", "bf16", True),
    ("tracking", {"mode": "online", "project": "other", "entity": "me"}, False),
    ("studies.tiny.title", "Another title", False),
    ("studies.tiny.experiments.main.title", "Another title", False),
    ("studies.tiny.experiments.main.methods", ["er"], False),
    ("benchmarks.split-target.title", "Another title", False),
    ("benchmarks.split-target.methods.joint.lr", 0.9, False),
    ("datasets.target.title", "Another title", False),
    ("datasets.origin.augmentation.padding", 4, False),
]


def digest(values: Values) -> str:
    (run,) = [run for run in plan(values).runs.values() if run.method == "er"]
    return run.digest


@pytest.mark.parametrize(
    ("path", "value", "decides"), CHANGES, ids=[f"{path}-{decides}" for path, _, decides in CHANGES]
)
def test_the_digest_changes_with_what_decides_the_result_alone(values, path, value, decides):
    er(values)["lr"] = 1.0
    before = digest(values)
    er(values)["lr"] = 1  # without its point, no change
    *parents, last = path.split(".")
    reduce(getitem, parents, values)[last] = value
    assert (digest(values) != before) == decides


@settings(max_examples=30)
@given(st.data())
def test_cells_name_exactly_the_runs_with_their_own_parameters(data):
    """Whatever the overrides, of which a later one wins; and no run is left over."""
    rates = st.sampled_from([0.1, 0.2])
    buffers, protocols = st.sampled_from([500, 2000]), st.sampled_from(params.PROTOCOLS)
    override = st.fixed_dictionaries(
        {"lr": rates}, optional={"buffer": buffers, "protocol": protocols}
    )
    values = LOADED.model_dump(exclude_none=True)
    methods = values["benchmarks"]["split-cifar100"]["methods"]
    overrides = {m: data.draw(st.lists(override, max_size=4)) for m in ("er", "finetune")}
    for method, changes in overrides.items():
        changes = [c for c in changes if method == "er" or "buffer" not in c]
        methods[method] = {"lr": 0.3, "overrides": changes}
    main = {"title": "", "benchmarks": ["split-cifar100"], "methods": ["finetune", "er"]}
    values["studies"]["paper"]["experiments"] = {"main": main}
    planned = plan(values, "paper")
    used = set()
    for cell in planned.tables["main.split-cifar100"].cells:
        run = planned.runs[cell.runs[0]]
        rate = 0.3
        for change in methods[cell.method]["overrides"]:
            matches = {"buffer": cell.buffer, "protocol": cell.protocol} | change
            if (matches["buffer"], matches["protocol"]) == (cell.buffer, cell.protocol):
                rate = change["lr"]
        assert run.hyperparameters.lr == rate
        assert (run.method, run.buffer, run.seed) == (cell.method, cell.buffer, 0)
        used.add(run.id)
    assert used == set(planned.runs)
    assert len({run.digest for run in planned.runs.values()}) == len(planned.runs)


# The project's own studies


@pytest.mark.parametrize("name", ["demo", "corners", "paper", "paper-search"])
def test_no_run_propagates_features_without_mask_replay(name):
    """There, published code and ours would part, without a switch: docs/fidelity.md."""
    runs = [run for run in expand(LOADED, name).runs.values() if run.method == "twf"]
    propagating = [run.hyperparameters for run in runs if run.hyperparameters.lambda_fp > 0]
    assert propagating
    assert all(values.lambda_fp_replay > 0 for values in propagating)
