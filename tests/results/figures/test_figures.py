"""Figures: their frames against hand-made records, and their files."""

import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import pytest

from twf.files import figure_file, figures_folder
from twf.results import estimates, figures
from twf.results.figures import kinds, style
from twf.results.frame import Results
from twf.study import Plan, Run
from twf.study.methods import METHODS

ONE = {"methods": ["er"], "buffers": [500], "protocols": ["class-il"]}
STARTS = {
    "pretrained": {"title": "from pretraining"},
    "scratch": {"title": "from scratch", "pretrained": False},
}


def matrix(*seen: float, unseen: float = 7.0) -> list[list[float]]:
    """An accuracy matrix: after each task one value on all tasks seen, `unseen` on the others."""
    tasks = len(seen)
    return [[value] * (t + 1) + [unseen] * (tasks - t - 1) for t, value in enumerate(seen)]


def frame_of(kind: str, runs: Results) -> pd.DataFrame:
    """The frame of a kind of figure, of the plan's first table."""
    of_estimates = kind == "differences"
    made_of = estimates.of_study(runs) if of_estimates else runs
    return figures.KINDS[kind].frame(made_of, next(iter(runs.plan.tables.values())))


def write(runs: Results) -> list[str]:
    """Write the figures of a study; the names of those that have data."""
    return [drawn.name for drawn in figures.write(runs, estimates.of_study(runs))]


def files() -> dict[str, bytes]:
    """The files of the study's figures."""
    folder = figures_folder("small")
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


PROBED = {
    "cka": [[1.0] * 5, [0.9, 0.8, 0.7, 0.6, 0.5]],
    "nearest_neighbours": [[60.0, 70.0], [50.0, 55.0]],
}
GATED = PROBED | {"gates_open": [[40.0] * 5, [50.0, 60.0, 70.0, 80.0, 90.0]]}


def test_a_variant_whose_only_run_diverged_has_a_row_without_a_mean(make_plan, recorded):
    variants = {"as-set": {"title": "as set"}, "f7": {"title": "F7", "fidelity": {"F7": "paper"}}}
    plan = make_plan([0], **ONE | {"methods": ["twf"]}, variants=variants)
    name = "split-cifar10.twf.500"
    runs = recorded(plan, {f"{name}.s0": 60.0, f"{name}.f7.s0": {"status": "diverged"}})
    (table,) = plan.tables.values()
    (row,) = kinds.differences(estimates.of_study(runs), table).to_dict("records")
    assert (row["title"], row["n"], row["diverged"]) == ("F7", 0, 1)


def test_no_two_methods_look_alike():
    assert list(style.LOOKS) == list(METHODS)
    markers, colours = ({look[n] for look in style.LOOKS.values()} for n in ("marker", "color"))
    assert len(markers) == len(METHODS)  # which alone tell methods apart in grey
    assert len(colours) == min(len(METHODS), len(style.COLOURS))


@pytest.fixture
def all_of(recorded) -> Callable[[Plan], Results]:
    """A record of each run, all alike but for a little by seed; the third of several diverged."""

    def columns(run: Run) -> dict[str, Any]:
        if run.seed == 2:
            return {"status": "diverged"}
        levels = [90.0 - 7 * t - run.seed for t in range(run.tasks)]
        accuracy = matrix(*levels)[-run.phases :]
        both = dict.fromkeys(("accuracy_class_il", "accuracy_task_il"), accuracy)
        probed = GATED if run.method == "twf" else PROBED
        later = {name: [rows[0], *rows[1:] * run.phases] for name, rows in probed.items()}
        return both | (later if run.probes else {})

    return lambda plan: recorded(plan, {name: columns(run) for name, run in plan.runs.items()})


SWITCHES = {
    "as-set": {"title": "as set"},
    "f12": {"title": "F12", "methods": ["lwf"], "fidelity": {"F12": "paper"}},
    "f6": {"title": "F6", "methods": ["twf"], "fidelity": {"F6": "paper"}},
}
EXPERIMENTS = [  # and the kinds of figures that their tables have
    ({"methods": ["joint", "lwf", "twf"]}, {"accuracy"}),
    ({"methods": ["finetune", "derpp"], "seeds": [0], "buffers": [500]}, {"accuracy"}),
    ({"methods": ["lwf", "twf"], "variants": SWITCHES}, {"differences"}),
    ({"methods": ["er"], "probes": True, "variants": STARTS}, {"initialization"}),
    ({"methods": ["er", "twf"], "probes": True, "variants": STARTS}, {"initialization"}),
]


@pytest.mark.parametrize(("experiment", "kinds_drawn"), EXPERIMENTS)
def test_each_figure_is_drawn_without_a_warning_and_with_the_same_bytes(
    make_plan, all_of, experiment: dict[str, Any], kinds_drawn: set[str]
):
    runs = all_of(make_plan(**{"seeds": [0, 1, 2]} | experiment))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = write(runs)
    assert {name.partition(".")[0] for name in drawn} == kinds_drawn
    first = files()
    assert first.keys() == {f"{name}.{ending}" for name in drawn for ending in ("svg", "csv")}
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None}):  # a user's own settings
        write(runs)
    assert files() == first
    for name, content in first.items():
        if name.endswith(".svg"):
            assert b"<dc:date>" not in content
            ET.fromstring(content)


def test_the_data_beside_a_figure_are_what_it_shows(make_plan, all_of):
    runs = all_of(make_plan([0, 1], **ONE))
    frame = frame_of("accuracy", runs)
    drawn = figures.write(runs, estimates.of_study(runs))
    data = pd.read_csv(figure_file("small", "accuracy.main.split-cifar10", "csv"))
    text = ["method", "variant", "label", "protocol"]
    data[text] = data[text].astype(object).fillna("")
    pd.testing.assert_frame_equal(data, frame, check_dtype=False)
    assert "Mean over 2 seeds; bands" in drawn[0].caption


def test_one_wide_interval_does_not_flatten_the_rest():
    """It is cut, and ends in arrows; what the panel shows depends on means alone."""
    rows = pd.DataFrame({"mean": [1.0, 3.0], "paper": [2.0, None]})
    place = {"method": "er", "variant": "", "label": "ER", "buffer": 0, "protocol": "class-il"}
    place |= {"over": "TwF minus", "n": 2, "diverged": 0}
    frame = rows.assign(title=["ER", "DER++"], low=[0.5, -900.0], high=[1.5, 900.0], **place)
    with style.settings():
        (panel,) = kinds._draw_differences(frame).axes
    assert panel.get_xlim()[0] > -10 and panel.get_xlim()[1] < 15
    assert {line.get_marker() for line in panel.lines} >= {"<", ">"}


def test_figures_of_what_is_gone_are_removed(make_plan, all_of, collect):
    starts = {"methods": ["er"], "probes": True, "variants": STARTS, "buffers": [500]}
    runs = all_of(make_plan([0], **starts))
    assert write(runs) and files()
    for run in runs.plan.runs:
        Path(f"results/small/runs/{run}.parquet").unlink()
    assert write(collect(runs.plan)) == [] and files() == {}
