"""Which runs are done, and what `twf plan` says a study can decide."""

import json

import pytest
import torch
from support import plan_of

from twf.errors import UserError
from twf.files import record_file, state_file
from twf.jobs import checkpoints
from twf.jobs.checkpoints import Checkpoint
from twf.results import record, status
from twf.results.frame import Results
from twf.study.code import LOOP, code_hash, method_module
from twf.study.products import Products, digest

CODE = {"commit": None, "method_hash": code_hash(LOOP, method_module("co2l"))}


def test_runs_that_differ_in_their_seed_alone_are_one_row(make_plan, capsys):
    plan = make_plan([0, 1, 2], methods=["er"], buffers=[500])
    status.show(plan, status.of_runs(plan))
    said = capsys.readouterr().out
    assert "3 runs (3 to do) fill 2 cells of 1 table" in said  # Class-IL and Task-IL
    assert "split-cifar10.er.500.s{0,1,2} " in said


def state(plan, run):
    held = status.recorded(Products(plan.params), run)
    return held.state, held.why


@pytest.fixture
def plan(make_plan, recorded):
    """A run with its record; the inputs that it was made from are not there."""
    plan = make_plan([0], methods=["co2l"], buffers=[500])
    recorded(plan)
    return plan


@pytest.fixture
def run(plan):
    (run,) = plan.runs.values()
    return run


@pytest.fixture
def made_with(plan, run, recorded):
    """`made_with(code=…, inputs=…)`: its record says that it was made so."""

    def write(**said):
        rest = {
            key: value for key, value in plan_of(plan.params, run).items() if key != "parameters"
        }
        values = {"parameters": run.parameters, "plan": rest} | said
        recorded(plan, {run.id: {"provenance": json.dumps(values)}})

    return write


def test_what_is_done_is_counted_and_listed_where_something_is_to_be_said(
    plan, run, recorded, made_with, capsys
):
    """A run of other code is done and shown so, where a study does not follow its methods' code."""

    def shown(**switches):
        status.show(plan, status.of_runs(plan), **switches)
        return capsys.readouterr().out

    made_with(code={"commit": "abc", "method_hash": "0" * 64})
    assert state(plan, run) == ("done", status.OTHER_CODE)
    made_with(code=CODE)
    cell = run.id.removesuffix(".s0")
    assert cell not in shown() and "not listed (see --all): 1" in shown()
    assert cell in shown(every=True)
    row = record.read(record_file(run.study, run.id)).to_pylist()[0]
    recorded(plan, {run.id: row | {"status": "diverged", "reason": "nan"}})
    assert state(plan, run) == ("done", "diverged") and "done, diverged" in shown()


def test_a_run_that_was_begun_says_how_far_it_is(plan, run, capsys):
    record_file(run.study, run.id).unlink()
    path = state_file(run.study, run.id)
    path.parent.mkdir(parents=True)
    saved = {"guard": {"plan": digest(plan_of(plan.params, run))}}
    saved |= {"state": {"place": {"phase": 2, "epoch": 7}}}
    state_of_run = {"x": torch.zeros(1)}
    checkpoints.write(path, Checkpoint(state_of_run, saved))  # as a run does
    assert state(plan, run) == ("to do", "107/250 epochs saved")
    status.show(plan, status.of_runs(plan))
    assert "to do, 107/250 epochs saved" in capsys.readouterr().out
    other = saved | {"guard": {"plan": "of before"}}
    checkpoints.write(path, Checkpoint(state_of_run, other))
    assert state(plan, run) == ("to do", "")
    path.write_bytes(b"torn")
    assert state(plan, run) == ("to do", "")


def test_a_stale_run_says_what_its_record_was_made_by(plan, run, made_with):
    made_with(code=CODE)
    changed = run.hyperparameters.changed({"lr": 0.03, "tau": 0.5})
    other = run.model_copy(update={"hyperparameters": changed, "epochs": 7})
    said, why = state(plan, other)
    assert said == "stale"
    assert sorted(why.split(", ")) == ["epochs: 50 -> 7", "lr: 0.5 -> 0.03", "tau: 0.07 -> 0.5"]
    network = run.network.model_copy(update={"width": 16})
    many = other.model_copy(update={"network": network, "buffer": None})
    _, why = state(plan, many)
    assert "buffer: 500 -> none, " in why and why.endswith(" and 1 more")
    made_with(parameters={key: value for key, value in run.parameters.items() if key != "epochs"})
    assert state(plan, run) == ("stale", "epochs: none -> 50")
    record_file(run.study, run.id).write_bytes(b"torn")
    said, why = state(plan, run)
    assert said == "stale" and str(record_file(run.study, run.id)) in why


def test_a_record_of_another_recipe_is_neither_done_nor_collected_nor_averaged(
    plan, run, made_with
):
    rest = plan_of(plan.params, run)
    del rest["parameters"]
    rest["network"]["pretraining"]["epochs"] = 3
    made_with(plan=rest)
    assert state(plan, run) == ("stale", "network.epochs: 3 -> 200")
    assert Results.of_records(plan, plan.runs).runs.loc[run.id, "status"] == "stale"
    with pytest.raises(UserError, match="epochs: 3 -> 200"):
        status.require_done(plan)
    made_with(code=CODE)
    assert Results.of_records(plan, plan.runs).runs.loc[run.id, "status"] == "finished"
    status.require_done(plan)
