"""Which runs are done, and what `twf plan` says a study can decide."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from twf.data import inputs, store
from twf.errors import UserError
from twf.files import PARAMS, checkpoint_file, data_file, record_file, replaced_file, state_file
from twf.jobs import checkpoints
from twf.learning.models.resnet import ResNet
from twf.results import statistics, status
from twf.results.frame import Results
from twf.results.paper.comparison import MARGIN
from twf.study import reading


def test_the_plan_says_how_many_seeds_its_cells_have_and_what_a_verdict_takes(make_plan, capsys):
    plan = make_plan([0, 1, 2], methods=["er"], buffers=[500])
    found = status.of_plan(reading.load(PARAMS), plan)
    assert found["seeds"] == {3: 2}  # Class-IL and Task-IL
    status.show(found)
    said = capsys.readouterr().out
    assert "2 cells with 3" in said
    assert "split-cifar10.er.500.s{0,1,2} " in said
    status.show(found, runs=False)
    assert "split-cifar10.er" not in capsys.readouterr().out


def test_the_seeds_that_agreement_takes_are_those_of_the_statistics():
    assert statistics.seeds_needed(1.0, MARGIN) == status.SEEDS_FOR_AGREEMENT


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
        recorded(plan, {run.id: {"provenance": json.dumps({"parameters": run.values} | said)}})

    return write


def test_a_run_whose_code_no_commit_has_is_done_and_shown_so(plan, run, made_with, capsys):
    for commit, why in (("abc+", status.UNCOMMITTED), ("abc", ""), (None, "")):
        made_with(code={"commit": commit})
        assert status.run_state(plan.params, run) == ("done", why)
        status.show(status.of_plan(reading.load(PARAMS), plan))
        assert (status.UNCOMMITTED in capsys.readouterr().out) == bool(why)


def test_what_is_done_is_counted_and_listed_where_something_is_to_be_said(
    plan, run, recorded, capsys
):
    found = status.of_plan(reading.load(PARAMS), plan)
    status.show(found)
    said = capsys.readouterr().out
    assert run.id.removesuffix(".s0") not in said and "not listed (see --all): 1" in said
    status.show(found, every=True)
    assert run.id.removesuffix(".s0") in capsys.readouterr().out
    recorded(plan, {run.id: {"status": "diverged", "reason": "nan"}})
    assert status.run_state(plan.params, run) == ("done", "diverged")
    status.show(status.of_plan(reading.load(PARAMS), plan))
    assert "done, diverged" in capsys.readouterr().out


@pytest.mark.parametrize(("step", "said"), [(0, ""), (40, ", 40 steps")])
def test_a_run_that_was_begun_says_how_far_it_is(plan, run, capsys, step, said):
    record_file(run.study, run.id).unlink()
    path = state_file(run.study, run.id)
    path.parent.mkdir(parents=True)
    saved = {"guard": {"parameters": run.digest}}
    saved |= {"state": {"place": {"phase": 2, "epoch": 7, "step": step}}}
    state = json.dumps(saved)
    save_file({"x": np.zeros(1)}, path, metadata={"state": state})
    assert status.run_state(plan.params, run) == ("to do", f"no record, 107/250 epochs{said} saved")
    status.show(status.of_plan(reading.load(PARAMS), plan))
    assert f"to do, 107/250 epochs{said} saved" in capsys.readouterr().out
    other = json.dumps(saved | {"guard": {"parameters": "of before"}})
    save_file({"x": np.zeros(1)}, path, metadata={"state": other})
    said = "no record, what is saved has other parameters"
    assert status.run_state(plan.params, run) == ("to do", said)
    path.write_bytes(b"torn")
    assert status.run_state(plan.params, run) == ("to do", "no record")


def test_a_stale_run_says_which_parameters_its_record_has(plan, run):
    changed = run.hyperparameters.changed({"lr": 0.03, "tau": 0.5})
    other = run.model_copy(update={"hyperparameters": changed, "epochs": 7})
    state, why = status.run_state(plan.params, other)
    assert state == "stale"
    assert sorted(why.split(", ")) == ["epochs: 50 -> 7", "lr: 0.5 -> 0.03", "tau: 0.07 -> 0.5"]
    network = run.network.model_copy(update={"width": 16})
    assert status.run_state(plan.params, run.model_copy(update={"network": network})) == (
        "stale",
        "network.width: 64 -> 16",
    )
    many = other.model_copy(update={"network": network, "buffer": None})
    _, why = status.run_state(plan.params, many)
    assert why.startswith("buffer: 500 -> none, ") and why.endswith(", 1 more")


def test_a_stale_run_says_that_a_record_of_its_parameters_is_kept(plan, run, recorded):
    recorded(plan, {run.id: {"digest": "of other parameters"}})
    assert "kept" not in status.run_state(plan.params, run)[1]
    kept = replaced_file(run.study, run.id, run.digest)
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert status.run_state(plan.params, run)[1].endswith("; a record of before is kept")


def test_a_parameter_that_did_not_exist_yet_makes_a_record_stale(plan, run, recorded):
    old = {key: value for key, value in run.values.items() if key != "epochs"}
    provenance = json.dumps({"parameters": old})
    recorded(plan, {run.id: {"digest": "old", "provenance": provenance}})
    assert status.run_state(plan.params, run) == ("stale", "epochs: none -> 50")


def test_a_record_from_another_checkpoint_is_stale_and_a_checkpoint_not_there_says_nothing(
    plan, run, made_with
):
    path = checkpoint_file(run.source)
    path.parent.mkdir()
    path.write_bytes(b"one")
    made_with(inputs={"checkpoint_sha256": hashlib.sha256(b"one").hexdigest()})
    assert status.run_state(plan.params, run) == ("done", "")
    path.write_bytes(b"another")
    assert status.run_state(plan.params, run) == ("stale", f"another {path}")
    path.unlink()
    assert status.run_state(plan.params, run) == ("done", "")


def test_a_network_trained_again_with_the_same_result_is_the_same(plan, run, made_with):
    """Its file says another time, and maybe another commit."""
    path = checkpoint_file(run.source)
    path.parent.mkdir()
    network = ResNet(run.network, 3)
    checkpoints.save(path, network, {"network": run.network.model_dump(), "seconds": 1.0})
    made_with(inputs={"network_sha256": inputs.tensors_sha256(path)})
    checkpoints.save(path, network, {"network": run.network.model_dump(), "seconds": 2.0})
    assert status.run_state(plan.params, run) == ("done", "")
    network.classifier.bias.data.add_(1)
    checkpoints.save(path, network, {"network": run.network.model_dump(), "seconds": 1.0})
    assert status.run_state(plan.params, run) == ("stale", f"another {path}")


def test_a_record_from_other_data_is_neither_done_nor_collected_nor_averaged(plan, run, made_with):
    images = np.zeros((10, 32, 32, 3), np.uint8)
    split = store.Split(images, np.arange(10))
    path = data_file(run.data)
    path.parent.mkdir()
    store.save(path, run.data, store.DataArrays(split, split, list("abcdefghij")))
    made_with(inputs=dict.fromkeys(("train_fingerprint", "test_fingerprint"), split.fingerprint))
    assert status.run_state(plan.params, run) == ("done", "")
    other = store.Split(images + 1, np.arange(10))
    store.save(path, run.data, store.DataArrays(split, other, list("abcdefghij")))
    assert status.run_state(plan.params, run) == ("stale", f"another {path}")
    assert Results.of_records(plan, plan.runs).runs.loc[run.id, "status"] == "stale"
    with pytest.raises(UserError, match=str(path)):
        status.require_done(plan)
    path.unlink()
    assert Results.of_records(plan, plan.runs).runs.loc[run.id, "status"] == "finished"
    status.require_done(plan)


def test_a_record_that_cannot_be_read_is_neither_done_nor_stale(plan, run):
    path = record_file(run.study, run.id)
    path.write_bytes(b"torn")
    state, why = status.run_state(plan.params, run)
    assert state == "unreadable" and str(path) in why
