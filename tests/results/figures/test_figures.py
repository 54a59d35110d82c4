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

from twf.cli import results as commands
from twf.files import figure_file, figure_index
from twf.results import figures, record
from twf.results.figures import kinds, style
from twf.results.frame import Results
from twf.study import Plan, Run
from twf.study.methods import METHODS

ER = "split-cifar10.er.500"
ONE = {"methods": ["er"], "buffers": [500], "protocols": ["class-il"]}
OFF = {"lambda_fp": 0.0, "lambda_fp_replay": 0.0, "lambda_diversity": 0.0}
CORNERS = {
    "all": {"title": "all"},
    "cl": {"title": "CL", "hyperparameters": OFF},
    "f6": {"title": "F6", "fidelity": {"F6": "paper"}},
    "cl-f6": {"title": "CL, F6", "hyperparameters": OFF, "fidelity": {"F6": "paper"}},
}
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


@pytest.fixture
def switches(make_plan) -> Plan:
    variants = {
        "as-set": {"title": "as set"},
        "f6": {"title": "F6, all classes", "fidelity": {"F6": "paper"}},
        "f7": {"title": "F7, squared norm", "fidelity": {"F7": "paper"}},
        "same": {"title": "F6 as it is", "fidelity": {"F6": "published"}},
    }
    return make_plan([0, 1, 2], **ONE | {"methods": ["twf"]}, variants=variants)


def test_without_twf_there_is_no_difference(make_plan, recorded):
    plan = make_plan([0], methods=["er", "twf"], buffers=[500])
    runs = recorded(plan, {f"{ER}.s0": 60.0, "split-cifar10.twf.500.s0": {"status": "diverged"}})
    assert frame_of("differences", runs).empty
    assert "differences.main.split-cifar10" in figures.write(runs)


def test_a_variant_whose_only_run_diverged_has_a_row_without_a_mean(make_plan, recorded):
    variants = {"as-set": {"title": "as set"}, "f7": {"title": "F7", "fidelity": {"F7": "paper"}}}
    plan = make_plan([0], **ONE | {"methods": ["twf"]}, variants=variants)
    name = "split-cifar10.twf.500"
    runs = recorded(plan, {f"{name}.s0": 60.0, f"{name}.f7.s0": {"status": "diverged"}})
    (row,) = frame_of("differences", runs).to_dict("records")
    assert (row["title"], row["n"], row["diverged"]) == ("F7", 0, 1)
    plan = make_plan([0, 1], **ONE | {"methods": ["twf"]}, variants=variants)
    some = {f"{name}.s0": 60.0, f"{name}.f7.s0": {"status": "diverged"}, f"{name}.f7.s1": 50.0}
    assert frame_of("differences", recorded(plan, some)).empty  # no seed is common, one finished


PROBED = {
    "cka": [[1.0] * 5, [0.9, 0.8, 0.7, 0.6, 0.5]],
    "nearest_neighbours": [[60.0, 70.0], [50.0, 55.0]],
}
GATED = PROBED | {"gates_open": [[40.0] * 5, [50.0, 60.0, 70.0, 80.0, 90.0]]}


@pytest.fixture
def probed(make_plan) -> Plan:
    return make_plan(
        [0, 1], **ONE | {"protocols": ["class-il", "task-il"]}, variants=STARTS, probes=True
    )


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
        return both | ((GATED if run.method == "twf" else PROBED) if run.probes else {})

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
    "gates": {"methods": ["er", "twf"], "probes": True, "variants": STARTS},
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
