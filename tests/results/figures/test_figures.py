"""Figures: their frames against hand-made records, and their files."""

from __future__ import annotations

import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import pytest
from frames import rows

from twf.cli import results as commands
from twf.files import figure_file, figure_index
from twf.results import figures, record, statistics
from twf.results.figures import charts, kinds, style
from twf.results.frame import Results
from twf.study import Plan, Run
from twf.study.methods import METHODS

ER = "split-cifar10.er.500"
ONE = {"methods": ["er"], "buffers": [500], "protocols": ["class-il"]}
STARTS = {
    "pretrained": {"title": "from pretraining"},
    "scratch": {"title": "from scratch", "pretrained": False},
}
SHARES = {
    "none": {"title": "0 %", "methods": ["derpp"]},
    "half": {"title": "50 %", "methods": ["derpp-pretraining"], "hyperparameters": {"share": 0.5}},
    "twf": {"title": "TwF", "methods": ["twf"]},
}
OF_SHARES = {"benchmarks": ["split-digits"], "methods": ["derpp", "derpp-pretraining", "twf"]}


def matrix(*seen: float, unseen: float = 7.0) -> list[list[float]]:
    """An accuracy matrix: after each task one value on all tasks seen, `unseen` on the others."""
    tasks = len(seen)
    return [[value] * (t + 1) + [unseen] * (tasks - t - 1) for t, value in enumerate(seen)]


def frame_of(kind: str, runs: Results) -> pd.DataFrame:
    """The frame of a kind of figure, of the plan's first table."""
    return figures.KINDS[kind].frame(runs, next(iter(runs.plan.tables.values())))


def files() -> dict[str, bytes]:
    """The files of the study's figures."""
    return {path.name: path.read_bytes() for path in figure_index("small").parent.iterdir()}


def values(frame: pd.DataFrame, *columns: str) -> list[Any]:
    """Some columns as plain tuples, with None for what is empty."""
    return [pytest.approx(tuple(row.values())) for row in rows(frame[list(columns)])]


def interval(low: float, high: float) -> tuple[float, float]:
    """Student's 95 % interval of the mean of two values."""
    return tuple(statistics.student_interval([low, high]) or ())


def test_accuracy_averages_the_tasks_seen_and_spans_the_seeds(make_plan, recorded):
    plan = make_plan([0, 1, 2], methods=["joint", "er"], buffers=[500], protocols=["class-il"])
    records = {
        f"{ER}.s0": {"accuracy_class_il": matrix(90.0, 80.0, 70.0, 60.0, 50.0)},
        f"{ER}.s1": {"accuracy_class_il": matrix(100.0, 80.0, 60.0, 40.0, 20.0)},
        f"{ER}.s2": {"status": "diverged"},
        "split-cifar10.joint.s0": {"accuracy_class_il": [[91.0, 92.0, 93.0, 94.0, 95.0]]},
    }
    frame = frame_of("accuracy", recorded(plan, records))
    assert values(frame, "method", "buffer", "tasks", "n", "mean", "low", "high") == [
        ("joint", None, 5, 1, 93.0, None, None),
        ("er", 500, 1, 2, 95.0, *interval(90, 100)),
        ("er", 500, 2, 2, 80.0, *interval(80, 80)),
        ("er", 500, 3, 2, 65.0, *interval(60, 70)),
        ("er", 500, 4, 2, 50.0, *interval(40, 60)),
        ("er", 500, 5, 2, 35.0, *interval(20, 50)),
    ]


def test_matrix_is_the_mean_over_seeds_without_joint(make_plan, recorded):
    methods = ["joint", "finetune", "er"]
    plan = make_plan([0, 1], methods=methods, buffers=[500, 5120], protocols=["task-il"])
    records = dict.fromkeys(plan.runs, 80.0) | {
        f"{ER}.task-il.s0": {"accuracy_task_il": matrix(*[10.0] * 5, unseen=0.0)},
        f"{ER}.task-il.s1": {"accuracy_task_il": matrix(*[20.0] * 5, unseen=1.0)},
    }
    frame = frame_of("matrix", recorded(plan, records))
    assert frame.groupby(["method", "buffer"]).size().to_dict() == {
        ("er", 500): 25,  # with the smallest buffer alone
        ("finetune", 0): 25,
    }
    at = frame[frame["method"] == "er"].set_index(["trained", "evaluated"])["mean"]
    assert (at[5, 1], at[1, 1], at[1, 5]) == (15.0, 15.0, 0.5)


@pytest.fixture
def switches(make_plan) -> Plan:
    variants = {
        "as-set": {"title": "as set"},
        "f6": {"title": "F6, all classes", "fidelity": {"F6": "paper"}},
        "f7": {"title": "F7, squared norm", "fidelity": {"F7": "paper"}},
        "same": {"title": "F6 as it is", "fidelity": {"F6": "published"}},
    }
    return make_plan([0, 1, 2], **ONE | {"methods": ["twf"]}, variants=variants)


def test_variants_are_compared_seed_by_seed_with_the_base(switches, recorded):
    records = {
        "split-cifar10.twf.500.s0": 50.0,
        "split-cifar10.twf.500.s1": 60.0,
        "split-cifar10.twf.500.f6.s0": 51.0,
        "split-cifar10.twf.500.f6.s1": 58.0,
        "split-cifar10.twf.500.f6.s2": 99.0,  # its seed has no base
        "split-cifar10.twf.500.f7.s0": {"status": "diverged"},
    }
    frame = frame_of("differences", recorded(switches, records))
    assert values(frame, "title", "over", "n", "mean", "low", "high", "diverged") == [
        ("F6, all classes", "TwF with", 2, -0.5, *interval(-2, 1), 0),
        ("F7, squared norm", "TwF with", 0, None, None, None, 1),
        ("F6 as it is", "TwF with", 2, 0.0, 0.0, 0.0, 0),  # the base's own runs
    ]


def test_methods_with_a_buffer_are_subtracted_from_twf_beside_the_papers_gain(make_plan, recorded):
    plan = make_plan([0], methods=["finetune", "er", "twf"], buffers=[500], protocols=["class-il"])
    levels = {"finetune": 20.0, "er": 60.0, "twf": 70.0}
    runs = recorded(plan, {name: levels[run.method] for name, run in plan.runs.items()})
    frame = frame_of("differences", runs)
    assert values(frame, "title", "over", "n", "mean", "paper") == [
        ("ER", "TwF minus", 1, 10.0, 16.41)
    ]


def test_without_twf_there_is_no_difference(make_plan, recorded):
    plan = make_plan([0], methods=["er", "twf"], buffers=[500])
    runs = recorded(plan, {f"{ER}.s0": 60.0, "split-cifar10.twf.500.s0": {"status": "diverged"}})
    assert frame_of("differences", runs).empty
    assert "differences.main.split-cifar10" in figures.write(runs)


def test_without_its_base_a_switch_changes_nothing_known(switches, recorded):
    runs = recorded(switches, {"split-cifar10.twf.500.f6.s0": 80.0})
    assert frame_of("differences", runs).empty


PROBED = {
    "cka": [[1.0] * 5, [0.9, 0.8, 0.7, 0.6, 0.5]],
    "nearest_neighbours": [[60.0, 70.0], [50.0, 55.0]],
}


@pytest.fixture
def probed(make_plan) -> Plan:
    return make_plan(
        [0, 1], **ONE | {"protocols": ["class-il", "task-il"]}, variants=STARTS, probes=True
    )


def test_initialization_has_each_layer_once_for_both_protocols(probed, recorded):
    other = PROBED | {"cka": [[1.0] * 5, [0.7, 0.6, 0.5, 0.4, 0.3]]}
    records = {f"{ER}.s0": PROBED, f"{ER}.s1": other, f"{ER}.scratch.s0": PROBED}
    frame = frame_of("initialization", recorded(probed, records))
    assert len(frame) == 2 * (2 * 5 + 2 * 2)  # rows, times before and after for each layer
    at = frame.set_index(["label", "quantity", "layer", "tasks"])
    last = at.loc[("ER, from pretraining", "cka", "Layer 4", 1)]
    assert (last["n"], last["mean"]) == (2, pytest.approx(0.4))
    assert (last["low"], last["high"]) == pytest.approx(interval(0.5, 0.3))
    scratch = at.loc[("ER, from scratch", "nearest_neighbours", "Layer 3", 1)]
    assert (scratch["n"], scratch["mean"]) == (1, 50.0)
    assert pd.isna(scratch["low"])


def test_shares_have_the_level_of_twf_as_it_is(make_plan, recorded):
    control = SHARES["half"] | {"title": "0 %, head", "hyperparameters": {"share": 0.0}}
    other = SHARES["twf"] | {"title": "other", "hyperparameters": {"beta": 9.0}}
    variants = {"none": SHARES["none"], "control": control} | SHARES | {"other": other}
    one = {"buffers": [200], "protocols": ["class-il"], "variants": variants}
    plan = make_plan([0], **OF_SHARES, **one)
    levels = {"derpp": 50.0, "derpp-pretraining": 40.0, "twf": 60.0}
    runs = recorded(plan, {name: levels[run.method] for name, run in plan.runs.items()})
    frame = frame_of("shares", runs)
    assert values(frame, "method", "share", "mean") == [
        ("derpp", 0.0, 50.0),
        ("derpp-pretraining", 0.0, 40.0),
        ("derpp-pretraining", 50.0, 40.0),
        ("twf", None, 60.0),
    ]
    (panel,) = charts.shares(frame).axes
    lines = {str(line.get_label()): list(line.get_xdata()) for line in panel.get_lines()}
    assert lines["DER++"] == [0.0], "what the head does is no effect of a share"
    assert lines["DER++ with pretraining images"] == [0.0, 50.0]


def names(plan: Plan) -> list[str]:
    return [figure.name for figure in figures.planned(plan)]


def test_a_table_has_the_figures_of_what_it_is_about(make_plan, switches, probed):
    at = "main.split-cifar10"
    assert names(switches) == [f"differences.{at}"]
    assert names(probed) == [f"initialization.{at}"]
    assert names(make_plan([0], methods=["joint", "er"])) == [
        f"accuracy.{at}",
        f"matrix.{at}",
    ]


def test_no_two_methods_look_alike():
    assert list(style.LOOKS) == list(METHODS)
    markers = {look["marker"] for look in style.LOOKS.values()}
    assert len(markers) == len(METHODS)  # they alone tell methods apart in grey


@pytest.fixture
def all_of(recorded) -> Callable[[Plan], Results]:
    """A record of each run, all alike but for a little by seed; the third of several diverged."""

    def columns(run: Run) -> dict[str, Any]:
        if run.seed == 2:
            return {"status": "diverged"}
        levels = [90.0 - 7 * t - run.seed for t in range(run.tasks)]
        accuracy = matrix(*levels)[-run.phases :]
        both = dict.fromkeys(("accuracy_class_il", "accuracy_task_il"), accuracy)
        return both | (PROBED if run.probes else {})

    return lambda plan: recorded(plan, {name: columns(run) for name, run in plan.runs.items()})


EXPERIMENTS = {
    "methods": {"methods": ["joint", "lwf", "twf"]},
    "one seed": {"methods": ["finetune", "derpp"], "seeds": [0], "buffers": [500]},
    "switches": {
        "methods": ["lwf", "twf"],
        "variants": {
            "as-set": {"title": "as set"},
            "f12": {"title": "F12", "methods": ["lwf"], "fidelity": {"F12": "paper"}},
            "f6": {"title": "F6", "methods": ["twf"], "fidelity": {"F6": "paper"}},
        },
    },
    "probes": {"methods": ["er"], "probes": True, "variants": STARTS},
    "shares": OF_SHARES | {"variants": SHARES},
}


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_each_figure_is_drawn_without_a_warning_and_with_the_same_bytes(
    make_plan, all_of, experiment: dict[str, Any]
):
    plan = make_plan(**{"seeds": [0, 1, 2]} | experiment)
    runs = all_of(plan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert figures.write(runs) == []
    first = files()
    assert first.keys() == {"index.csv"} | {
        f"{name}.{ending}" for name in names(plan) for ending in ("svg", "csv")
    }
    figure_index("small").unlink()  # so that all are drawn again
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None}):  # a user's own settings
        figures.write(runs)
    assert files() == first
    for name, content in first.items():
        if name.endswith(".svg"):
            assert b"<dc:date>" not in content
            ET.fromstring(content)


def test_the_data_beside_a_figure_are_what_it_shows(make_plan, all_of):
    runs = all_of(make_plan([0, 1], **ONE))
    frame = frame_of("accuracy", runs)
    figures.write(runs)
    data = pd.read_csv(figure_file("small", "accuracy.main.split-cifar10", "csv"))
    text = ["method", "variant", "label", "protocol"]
    data[text] = data[text].astype(object).fillna("")
    pd.testing.assert_frame_equal(data, frame, check_dtype=False)
    drawing = ET.parse(figure_file("small", "accuracy.main.split-cifar10", "svg"))
    text = " ".join("".join(drawing.getroot().itertext()).split())
    assert "Mean over 2 seeds; bands" in text and "One seed" not in text


def test_only_what_has_changed_is_drawn_again(make_plan, all_of, collect, monkeypatch):
    """A value of one run: its figures. A drawing that was lost or changed: that one. Code: all."""
    runs = all_of(make_plan([0, 1], **ONE))
    plan = runs.plan
    drawn: list[str] = []
    svg, of = kinds.as_svg, {kind.draw: name for name, kind in figures.KINDS.items()}

    def spied(draw: Any, *rest: Any) -> bytes:
        drawn.append(f"{of[draw]}.main.split-cifar10")
        return svg(draw, *rest)

    monkeypatch.setattr(kinds, "as_svg", spied)

    def again(runs: Results = runs) -> list[str]:
        drawn.clear()
        assert figures.write(runs) == []
        return list(drawn)

    assert again() == names(plan)
    whole = files()
    assert again() == [] and files() == whole
    lost, edited = (figure_file("small", name, "svg") for name in names(plan))
    lost.unlink()
    edited.write_bytes(b"<svg/>")
    assert again() == names(plan) and files() == whole
    path = Path(f"results/small/runs/{next(iter(plan.runs))}.parquet")
    (row,) = record.read(path).to_pylist()
    row["accuracy_class_il"][0][-1] += 1.0  # of a task still to come
    record.write(path, row)
    assert again(collect(plan)) == ["matrix.main.split-cifar10"]
    kinds._code.cache_clear()
    monkeypatch.setattr(kinds, "version", lambda _: "another")
    assert again() == names(plan)
    kinds._code.cache_clear()


def test_of_an_incomplete_study_what_is_there(make_plan, all_of, collect, monkeypatch, capsys):
    starts = {"methods": ["er"], "probes": True, "variants": STARTS, "buffers": [500]}
    runs = all_of(make_plan([0], **starts))
    plan = runs.plan
    assert figures.write(runs) == []
    (name,) = names(plan)
    assert figure_file("small", name, "svg").exists()
    for run in plan.runs:
        Path(f"results/small/runs/{run}.parquet").unlink()
    collect(plan)
    monkeypatch.setattr(commands, "plan_of", lambda params, study: plan)
    commands.figures("small")
    assert name in capsys.readouterr().out
    assert not figure_file("small", name, "svg").exists()


def test_without_any_finished_run_the_list_is_empty(make_plan, recorded):
    runs = recorded(make_plan([0], **ONE), {f"{ER}.s0": {"status": "diverged"}})
    assert figures.write(runs) == names(runs.plan)
    assert list(files()) == ["index.csv"]
    assert len(pd.read_csv(figure_index("small"))) == 0


def test_weights_are_of_runs_that_differ_in_propagation_alone(make_plan, all_of):
    """Another buffer's weight, and variants that change another term, are no weights of it."""
    cl = {"lambda_fp": 0.0, "lambda_fp_replay": 0.0, "lambda_diversity": 0.0}
    variants = {
        "all": {"title": "all"},
        "cl": {"title": "CL", "hyperparameters": cl},
        "cl-fp": {"title": "CL + FP", "hyperparameters": {"lambda_diversity": 0.0}},
    }
    made = make_plan([0, 1], methods=["twf"], variants=variants, buffers=[500, 5120])
    assert not [of for of in figures.planned(made) if of.name.startswith("weights")]
    as_set = next(iter(made.runs.values())).hyperparameters.lambda_fp
    variants |= {"x10": {"title": "times 10", "hyperparameters": {"lambda_fp": 10 * as_set}}}
    plan = make_plan([0, 1], methods=["twf"], variants=variants, buffers=[500])
    (one,) = (of for of in figures.planned(plan) if of.name.startswith("weights"))
    frame = one.kind.frame(all_of(plan), one.table)
    assert frame[["factor", "n"]].to_numpy().tolist() == [[0.0, 2], [1.0, 2], [10.0, 2]]
    probed = make_plan([0, 1], methods=["twf"], variants=variants, buffers=[500], probes=True)
    kept = frame_of("weights", all_of(probed)).query("quantity == 'kept'")
    assert values(kept, "factor", "mean") == [(0.0, 55.0), (1.0, 55.0), (10.0, 55.0)]  # on Layer 4
    without = {name: of for name, of in variants.items() if name != "all"}
    unset = make_plan([0], methods=["twf"], variants=without, buffers=[500])
    assert not [of for of in figures.planned(unset) if of.name.startswith("weights")]
