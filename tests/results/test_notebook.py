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
from twf.results.frame import AS_SET, Results, served
from twf.results.notebook import Frames
from twf.study import reading

PLACE = ["benchmark", "source", "method", "variant", "buffer"]
HISTORY = [
    {"phase": phase, "epoch": 0, "seconds": 1.0, "loss": 3.0, "terms": {"stream": 1.0, "FP": 2.0}}
    for phase in range(5)
]


def test_records_that_are_stale_are_said_to_be(make_plan, recorded, capsys):
    plan = make_plan([0, 1], methods=["er"], buffers=[500])
    stale, kept = plan.runs
    recorded(plan, {stale: {"digest": "of other parameters"}, kept: 90.0})
    assert twf.results.load("small").runs.set_index("run").status[stale] == "stale"
    said = (
        "1 of 2 collected records are stale, and count as not finished: `twf plan small` says why"
    )
    assert said in capsys.readouterr().err


def test_a_method_without_a_buffer_stands_beside_each_of_the_others(make_plan, recorded):
    plan = make_plan([0, 1], methods=["oewc", "er"], buffers=[200, 500], protocols=["class-il"])
    recorded(plan, {run: 70.0 if ".er." in run else 50.0 for run in plan.runs})
    found = twf.results.load("small")
    for gains, mean in ((found.gains("er", "oewc"), 20.0), (found.gains("oewc", "er"), -20.0)):
        assert list(gains["buffer"]) == [200, 500]
        assert list(gains["gain_mean"]) == [mean, mean]


def test_what_is_not_there_is_named(make_plan, recorded):
    recorded(make_plan([0], methods=["er", "derpp"]))
    with pytest.raises(UserError, match="no method 'twf'|unknown method|'twf'"):
        twf.results.load("small").gains("twf", "derpp")
    with pytest.raises(UserError, match="'er' over itself"):
        twf.results.load("small").gains("er", "er")
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


@pytest.mark.slow
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
    overnight = twf.results.load("overnight")
    gains = overnight.gains("twf", "derpp")
    assert [f"{gain:+.1f}" for gain in gains["gain_mean"]] == re.findall(r"& ([+-][\d.]+) &", latex)
    less = overnight.forgetting("twf", "derpp").set_index(["benchmark", "buffer", "protocol"])
    cells = overnight.runs.groupby(["benchmark", "buffer", "method", "variant"])["ff_class_il"]
    forgotten = cells.mean()["split-cifar10", 500]
    expected = forgotten["twf", AS_SET] - forgotten["derpp", AS_SET]
    row = less.loc["split-cifar10", 500, "class-il"]
    assert row["forgetting_mean"] == pytest.approx(expected) and expected < -5
    assert row["forgetting_low"] < expected < row["forgetting_high"] and row["n"] == 3
