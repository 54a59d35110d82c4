"""Figures: their frames against hand-made records, and their files."""

import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import pytest

from twf.files import figure_file, figures_folder, tables_folder
from twf.results import estimates, figures, report
from twf.results.frame import Results
from twf.study import Plan, Run
from twf.study.methods import METHODS

STARTS = {
    "pretrained": {"title": "from pretraining"},
    "scratch": {"title": "from scratch", "pretrained": False},
}
SWITCHES = {
    "as-set": {"title": "as set"},
    "f12": {"title": "F12", "methods": ["lwf"], "fidelity": {"F12": "paper"}},
    "f6": {"title": "F6", "methods": ["twf"], "fidelity": {"F6": "paper"}},
}
PROBED = {
    "cka": [[1.0] * 5, [0.9, 0.8, 0.7, 0.6, 0.5]],
    "nearest_neighbours": [[60.0, 70.0], [50.0, 55.0]],
}
GATED = PROBED | {"gates_open": [[40.0] * 5, [50.0, 60.0, 70.0, 80.0, 90.0]]}


def write(runs: Results) -> list[figures.Drawn]:
    return figures.write(runs, estimates.of_study(runs))


def files() -> dict[str, bytes]:
    """The files of the study's figures."""
    return {path.name: path.read_bytes() for path in figures_folder("small").glob("*")}


def test_no_two_methods_look_alike():
    markers = {look["marker"] for look in figures.LOOKS.values()}
    assert len(markers) == len(METHODS)  # which alone tell methods apart in grey


@pytest.fixture
def all_of(recorded) -> Callable[[Plan], Results]:
    """A record of each run, all alike but for a little by seed; the third of several diverged."""

    def columns(run: Run) -> dict[str, Any]:
        if run.seed == 2:
            return {"status": "diverged"}
        # after each task one value on all tasks seen, 7 on the others
        levels = [90.0 - 7 * t - run.seed for t in range(run.tasks)]
        matrix = [[v] * (t + 1) + [7.0] * (run.tasks - t - 1) for t, v in enumerate(levels)]
        both = dict.fromkeys(("accuracy_class_il", "accuracy_task_il"), matrix[-run.phases :])
        probed = GATED if run.method == "twf" else PROBED
        later = {name: [rows[0], *rows[1:] * run.phases] for name, rows in probed.items()}
        return both | (later if run.probes else {})

    return lambda plan: recorded(plan, {name: columns(run) for name, run in plan.runs.items()})


@pytest.mark.parametrize(
    ("experiment", "kinds"),
    [
        ({"methods": ["joint", "lwf", "twf"]}, {"accuracy"}),
        ({"methods": ["er", "twf"]}, {"accuracy", "differences"}),
        ({"methods": ["finetune", "derpp"], "seeds": [0], "buffers": [500]}, {"accuracy"}),
        ({"methods": ["lwf", "twf"], "variants": SWITCHES}, {"differences"}),
        ({"methods": ["er", "twf"], "probes": True, "variants": STARTS}, {"initialization"}),
    ],
)
def test_each_figure_is_drawn_without_a_warning_and_with_the_same_bytes(
    make_plan, all_of, experiment: dict[str, Any], kinds: set[str]
):
    runs = all_of(make_plan(**{"seeds": [0, 1, 2]} | experiment))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", "Precision loss", RuntimeWarning)  # of equal seeds
        write(runs)
    first = files()
    table = next(iter(runs.plan.tables))
    assert first.keys() == {
        f"{kind}.{table}.{ending}" for kind in kinds for ending in ("svg", "csv")
    }
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None}):  # a user's own settings
        write(runs)
    assert files() == first
    for name, content in first.items():
        if name.endswith(".svg"):
            assert b"<dc:date>" not in content
            ET.fromstring(content)


def test_the_data_beside_a_figure_are_what_it_shows(make_plan, all_of):
    one = {"methods": ["er"], "buffers": [500], "protocols": ["class-il"]}
    (drawn,) = write(all_of(make_plan([0, 1], **one)))
    assert "Student's" in drawn.caption and drawn.caption.endswith("Seeds: 2.")
    data = pd.read_csv(figure_file("small", "accuracy.main.split-cifar10", "csv"))
    assert data["label"].unique() == ["ER"] and (data["n"] == 2).all()
    # a task has 90 - 7 t, and 1 less with the second seed
    assert dict(zip(data["tasks"], data["mean"], strict=True)) == {
        t + 1: pytest.approx(89.5 - 7 * t) for t in range(5)
    }
    assert (data["high"] - data["low"]).to_numpy() == pytest.approx(12.7062)


def test_a_panel_without_a_finished_run_is_left_out(make_plan, recorded):
    """Of buffer 500, the Task-IL runs, which have their own hyperparameters, are missing."""
    plan = make_plan([0], methods=["derpp"], benchmarks=["split-cifar100"])
    runs = recorded(plan, {run: 80.0 for run in plan.runs if "task-il" not in run})
    (drawn,) = write(runs)
    assert [f"{p}-IL, buffer {b}" in drawn.svg for p in ("Class", "Task") for b in (500, 2000)] == [
        *(True, True),
        *(False, True),
    ]


def test_one_wide_interval_does_not_flatten_the_rest():
    """It is cut, and ends in arrows; what the panel shows depends on means alone."""
    rows = pd.DataFrame({"mean": [1.0, 3.0], "paper": [2.0, None], "label": ["ER", "DER++"]})
    place = {"method": "twf", "variant": "", "buffer": 0, "protocol": "class-il", "n": 2}
    frame = rows.assign(low=[0.5, -900.0], high=[1.5, 900.0], **place)
    (panel,) = figures._draw_differences(frame, "TwF minus").axes
    assert panel.get_xlim()[0] > -10 and panel.get_xlim()[1] < 15
    arrows = [line.get_xdata() for line in panel.lines if line.get_marker() in "<>"]
    assert [list(pd.notna(ends)) for ends in arrows] == [[False, True]] * 2


def test_what_was_probed_fills_its_panels(make_plan, all_of):
    starts = {"methods": ["joint", "er", "twf"], "probes": True, "variants": STARTS}
    runs = all_of(make_plan([0], buffers=[500], **starts))
    (table,) = runs.plan.tables.values()
    frame = figures.initialization(runs, table)
    assert set(frame.loc[frame["method"] == "joint", "tasks"]) == {0, 5}  # it learns all at once
    for panel in figures._draw_initialization(frame).axes:
        for highest in (max(line.get_ydata()) for line in panel.lines):
            assert panel.get_ylim()[0] < highest < panel.get_ylim()[1] < 3 * highest


def test_figures_of_what_is_gone_are_removed(make_plan, all_of, collect):
    starts = {"methods": ["er"], "probes": True, "variants": STARTS, "buffers": [500]}
    runs = all_of(make_plan([0], **starts))
    assert write(runs) and files()
    for run in runs.plan.runs:
        Path(f"results/small/runs/{run}.parquet").unlink()
    assert write(collect(runs.plan)) == [] and files() == {}


def test_tables_of_an_experiment_that_is_taken_out_are_removed(make_plan, collect):
    results = collect(make_plan([0], methods=["er"]))
    report.write_all(results)
    kept = sorted(tables_folder("small").iterdir())
    for ending in ("md", "csv"):
        (tables_folder("small") / f"old.split-cifar10.{ending}").touch()
    report.write_all(results)
    assert kept and sorted(tables_folder("small").iterdir()) == kept
