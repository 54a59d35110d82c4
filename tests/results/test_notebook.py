"""What a notebook gets of a study: frames in which a group by place averages over seeds alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from project import PROJECT, kept

import twf.results
from twf import files, study
from twf.errors import UserError
from twf.results.frame import Results, served
from twf.results.notebook import Frames
from twf.study import reading

PLACE = ["benchmark", "source", "method", "variant", "buffer"]
HISTORY = [
    {"phase": phase, "epoch": 0, "seconds": 1.0, "loss": 3.0, "terms": {"stream": 1.0, "FP": 2.0}}
    for phase in range(5)
]


def test_a_runs_variant_tells_it_from_the_method_as_it_is(make_plan, recorded):
    f11 = {"title": "F11", "fidelity": {"F11": "paper"}}
    variants = {"same": {"title": "as set"}, "f11": f11}
    plan = make_plan([0, 1], methods=["co2l", "joint"], variants=variants, buffers=[500])
    recorded(plan, {run: 70.0 if "f11" in run else 90.0 for run in plan.runs})
    runs = twf.results.load("small").runs
    means = runs.groupby(["method", "variant", "buffer"]).faa_class_il.agg(["mean", "count"])
    assert means.to_dict("index") == {
        ("co2l", "as set", 500): {"mean": 90.0, "count": 2},
        ("co2l", "f11", 500): {"mean": 70.0, "count": 2},
        ("joint", "as set", 0): {"mean": 90.0, "count": 2},
    }
    assert runs["hyperparameters.lr"].notna().all()
    assert runs.set_index("method").ff_class_il.isna().to_dict() == {"co2l": False, "joint": True}


def test_records_that_are_stale_are_said_to_be(make_plan, recorded, capsys):
    plan = make_plan([0, 1], methods=["er"], buffers=[500])
    stale, kept = plan.runs
    recorded(plan, {stale: {"digest": "of other parameters"}, kept: 90.0})
    assert twf.results.load("small").runs.set_index("run").status[stale] == "stale"
    said = (
        "1 of 2 collected records are stale, and count as not finished: `twf plan small` says why"
    )
    assert said in capsys.readouterr().err


def test_accuracies_and_losses_have_a_row_for_each_number(make_plan, recorded):
    plan = make_plan([0], methods=["joint", "twf"], buffers=[500])
    matrix = [[10.0 * i + j for j in range(5)] for i in range(5)]
    records = {
        name: {"accuracy_class_il": matrix[: run.phases], "history": HISTORY[: run.phases]}
        for name, run in plan.runs.items()
    }
    recorded(plan, records)
    frames = twf.results.load("small")
    found = frames.accuracies.query("protocol == 'class-il'").set_index("method")
    wide = found.loc["twf"].pivot_table("accuracy", index="trained", columns="evaluated")
    assert list(wide.index) == [0, 1, 2, 3, 4, 5] and list(wide.columns) == [1, 2, 3, 4, 5]
    assert (wide.loc[0, 1], wide.loc[1, 5], wide.loc[5, 1]) == (50.0, 4.0, 40.0)
    assert sorted(found.loc["joint"].trained.unique()) == [0, 5]
    losses = frames.losses
    assert len(losses) == 2 * (5 + 1)
    twf_losses = losses[losses.method == "twf"]
    assert twf_losses.groupby("epoch").loss.sum().tolist() == [3.0] * 5
    assert twf_losses.trained.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_one_method_minus_another_is_paired_by_seed(make_plan, recorded):
    variants = {"as-set": {"title": "a"}, "cl": {"title": "b", "hyperparameters": {"alpha": 0.0}}}
    plan = make_plan([0, 1], methods=["derpp"], buffers=[500, 5120], variants=variants)
    levels = {"": 60.0, ".cl": 58.0}
    recorded(
        plan,
        {
            run: levels[".cl" if ".cl." in run else ""] + 10 * of.seed
            for run, of in plan.runs.items()
            if of.buffer == 500
        },
    )
    found = twf.results.load("small").gains("derpp", "derpp cl").set_index(["buffer", "protocol"])
    assert found.loc[(500, "class-il"), "gain_mean"] == 2.0
    assert found.loc[(500, "task-il"), ["n", "gain_low", "gain_high"]].tolist() == [2, 2.0, 2.0]
    assert found.loc[(5120, "class-il"), "n"] == 0
    with pytest.raises(UserError, match="no method 'twf'|unknown method|'twf'"):
        twf.results.load("small").gains("twf", "derpp")


def test_a_variant_without_a_buffer_is_not_paired_twice(make_plan, recorded):
    fp = {"title": "FP", "without_buffer": True, "hyperparameters": {"alpha": 0.0, "beta": 0.0}}
    variants = {"as-set": {"title": "all"}, "fp": fp}
    recorded(make_plan([0], methods=["twf"], buffers=[500], variants=variants))
    found = twf.results.load("small").gains("twf", "twf fp")
    assert found["n"].tolist() == [1, 1]
    runs = twf.results.load("small").runs
    assert {str(runs[name].dtype) for name in ("buffer", "seed")} == {"int64"}


def test_what_has_not_finished_is_named_and_has_no_accuracy(make_plan, recorded):
    plan = make_plan([0, 1, 2], methods=["er"], buffers=[500])
    first, second, _ = plan.runs
    recorded(plan, {first: 80.0, second: {"status": "diverged", "reason": "NaN"}})
    frames = twf.results.load("small")
    assert frames.runs.status.tolist() == ["finished", "diverged", "missing"]
    assert frames.runs.faa_class_il.notna().tolist() == [True, False, False]
    assert set(frames.accuracies.run) == {first}
    files.runs_file("small").unlink()
    with pytest.raises(UserError, match="twf collect small"):
        twf.results.load("small")


@pytest.mark.parametrize("name", ["demo", "paper", "paper-search"])
def test_runs_alike_in_their_place_differ_in_seed_or_protocol(name):
    plan = study.expand(reading.load(PROJECT / "params.yaml"), name)
    frames = Frames(Results.planned(plan))
    runs = frames.runs.merge(served(plan)[["run", "protocol"]], on="run")
    assert not runs.duplicated([*PLACE, "seed", "protocol"]).any()
    assert runs[[*PLACE, "seed", "protocol"]].notna().all(axis=None)


def test_the_examples_of_the_documentation(monkeypatch, tmp_path, recorded, capsys):
    page = (PROJECT / "docs/results.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n## In a notebook\n")
    examples = re.findall(r"^```python\n(.*?)^```", section.partition("\n## ")[0], re.M | re.S)
    monkeypatch.chdir(tmp_path)
    files.PARAMS.symlink_to(PROJECT / files.PARAMS)
    plan = study.expand(reading.load(files.PARAMS), "demo")
    recorded(plan, {run: {"history": HISTORY} for run in plan.runs})
    names: dict[str, object] = {}
    for example in examples:
        exec(example, names)
    said = capsys.readouterr().out
    assert "f11" in said and "evaluated" in said
    (axes,) = plt.gcf().axes
    assert sorted(text.get_text() for text in axes.get_legend().get_texts()) == ["FP", "stream"]
    plt.close("all")


def test_the_notebook_of_the_examples_runs_on_the_records_in_git(monkeypatch, tmp_path):
    notebook = json.loads((PROJECT / "examples/records.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    for path in (*kept("results"), PROJECT / files.PARAMS):
        here = tmp_path / path.relative_to(PROJECT)
        here.parent.mkdir(parents=True, exist_ok=True)
        here.symlink_to(path)
    (tmp_path / "examples").mkdir()
    monkeypatch.chdir(tmp_path / "examples")
    monkeypatch.setattr(plt, "show", lambda: None)
    names: dict[str, object] = {}
    for cell in code:
        exec("".join(cell["source"]), names)
    first, *_ = plt.gcf().axes
    assert len(first.texts) == 6 * 5
    plt.close("all")
    latex = Path("results/overnight/twf-minus-derpp.tex").read_text(encoding="utf-8")
    gains = twf.results.load("overnight").gains("twf", "derpp")
    assert [f"{gain:+.1f}" for gain in gains["gain_mean"]] == re.findall(r"& ([+-][\d.]+) &", latex)
