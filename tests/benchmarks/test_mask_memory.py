"""Masks to measure: those of real runs; and the command that prints what they take."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from benchmarks import mask_memory, mask_storage
from benchmarks.mask_storage import Masks

from twf import files
from twf.data import store
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.jobs.resume import Keeper
from twf.learning import loop
from twf.study import expand
from twf.study.params import Params
from twf.tracking.live import LiveTracker

RUN = "split-target.twf.16.s0"

pytestmark = pytest.mark.usefixtures("shallow")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """The numbers of seconds do not matter here."""
    monkeypatch.setattr(mask_storage, "ROUNDS", 1)
    monkeypatch.setattr(mask_storage, "SLICE", 0.0)


@pytest.fixture
def learned(tiny_inputs: Params):
    """`learned(steps)`: the masks that the miniature study's run leaves."""

    def learn(steps: int | None = None) -> Masks:
        run = expand(tiny_inputs, "tiny").runs[RUN]
        checkpoint = checkpoints.load(files.checkpoint_file(run.source), run.network)
        return mask_memory.learned_masks(run, steps, checkpoint)

    return learn


def test_the_masks_are_those_that_the_run_itself_leaves(learned, tiny_inputs, monkeypatch):
    run = expand(tiny_inputs, "tiny").runs[RUN]
    made = []
    make = loop.make
    monkeypatch.setattr(loop, "make", lambda *inputs: made.append(make(*inputs)) or made[-1])
    dataset = store.load(files.data_file(run.data))
    checkpoint = checkpoints.load(files.checkpoint_file(run.source), run.network)
    cpu = torch.device("cpu")
    keeper = Keeper(Path("not saved") / "state.safetensors", {}, math.inf)
    loop.train(run, dataset, None, checkpoint.tensors, cpu, LiveTracker(), lambda *_: None, keeper)
    (method,) = made
    whole, begun = learned().packed, learned(steps=1).packed
    assert torch.equal(whole, method.reservoir.rows["masks"][:16])
    assert len(begun) == 16  # two tasks, a batch of eight of each
    assert not torch.equal(begun, whole)


@pytest.mark.parametrize("run", ["split-target.er.16.s0", "er"])
def test_a_run_without_masks_or_that_is_not_planned_is_named(tiny_inputs, run):
    with pytest.raises(UserError, match=rf"\b{run}\b"):
        mask_memory.main("tiny", [run])


def test_brief_pretraining_moves_the_weights(tiny_inputs):
    start = mask_memory.briefly_pretrained(tiny_inputs, "origin", 0).tensors
    moved = mask_memory.briefly_pretrained(tiny_inputs, "origin", 2).tensors
    again = mask_memory.briefly_pretrained(tiny_inputs, "origin", 2).tensors
    assert not torch.equal(start["conv1.weight"], moved["conv1.weight"])
    assert all(torch.equal(again[name], tensor) for name, tensor in moved.items())


def test_the_command_prints_markdown_tables(tiny_inputs, capsys):
    mask_memory.main("tiny", [RUN], steps=1, pretraining_steps=1)
    _, *tables = capsys.readouterr().out.strip().split("\n\n")
    assert len(tables) == 3
    for table in tables:
        rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
        assert rows[0][1:] == [f"`{RUN}`, 1 steps per task", "random bits"]
        assert {len(row) for row in rows} == {3}
    assert "| packed bits | 100.0 % (100.0 %) | 100.0 % (100.0 %) |" in tables[1]
    assert "| packed bits | 1 / 1 | 1 / 1 |" in tables[2]
