"""The measurement of mask memory: real masks, and what storing them takes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import mask_memory
from mask_memory import Masks
from twf import files
from twf.data import store
from twf.errors import UserError
from twf.params import Params
from twf.replay.masks import MaskPacker
from twf.study import expand
from twf.tracking import NoTracker
from twf.training import checkpoints, loop
from twf.training.resume import Keeper

RUN = "split-target.twf.16.s0"
PACKER = MaskPacker([(4, 8, 8), (3, 2, 2)])


@pytest.fixture
def learned(tiny_inputs: Params):
    """`learned(run, steps)`: the masks that the miniature study's run leaves."""

    def learn(name: str = RUN, steps: int | None = None) -> Masks:
        run = expand(tiny_inputs, "tiny").runs[name]
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
    loop.train(run, dataset, None, checkpoint, cpu, NoTracker(), lambda *_: None, keeper)
    (method,) = made
    assert torch.equal(learned().packed, method.reservoir.rows["masks"][:16])


def test_fewer_steps_leave_fewer_masks(learned):
    assert len(learned(steps=1).packed) == 16  # two tasks, a batch of eight of each
    assert not torch.equal(learned(steps=1).packed, learned().packed)


def test_a_run_without_masks_is_named(learned):
    with pytest.raises(UserError, match=r"run split-target\.er\.16\.s0 stores no masks"):
        learned("split-target.er.16.s0")


def test_brief_pretraining_moves_the_weights(tiny_inputs):
    start = mask_memory.briefly_pretrained(tiny_inputs, "origin", 0).tensors
    moved = mask_memory.briefly_pretrained(tiny_inputs, "origin", 2).tensors
    again = mask_memory.briefly_pretrained(tiny_inputs, "origin", 2).tensors
    assert not torch.equal(start["conv1.weight"], moved["conv1.weight"])
    assert all(torch.equal(again[name], tensor) for name, tensor in moved.items())


def test_bytes_take_eight_times_the_packed_bits():
    found = mask_memory.measure(mask_memory.random_masks(5, PACKER))
    assert found["one byte per gate"].mean == 4 * 8 * 8 + 3 * 2 * 2
    assert found["packed bits"].mean == found["packed bits"].largest == 34  # 268 bits


def test_equal_masks_are_compressed_together_and_random_bits_never():
    """Over the whole buffer a compressor finds what repeats from image to image."""
    chance = mask_memory.random_masks(64, PACKER)
    equal = Masks("equal", chance.packed[:1].expand(64, -1).contiguous(), PACKER)
    for name in mask_memory.COMPRESSORS:
        apart, together = f"{name}, per image", f"{name}, whole buffer"
        found = mask_memory.measure(chance)
        assert found[apart].mean > PACKER.bytes and found[together].mean > PACKER.bytes
        found = mask_memory.measure(equal)
        assert found[together].mean < 0.1 * PACKER.bytes < found[apart].mean


def test_an_images_mean_and_largest_size_are_told_apart():
    packed = torch.zeros(2, PACKER.bytes, dtype=torch.uint8)
    packed[1] = mask_memory.random_masks(1, PACKER).packed[0]
    found = mask_memory.measure(Masks("one of two", packed, PACKER))["zlib 6, per image"]
    assert found.mean < PACKER.bytes < found.largest


def test_a_compressor_that_loses_something_is_refused(monkeypatch):
    lossy = {"lossy": (lambda part: part[1:], lambda part: part)}
    monkeypatch.setattr(mask_memory, "COMPRESSORS", lossy)
    with pytest.raises(RuntimeError, match="lost"):
        mask_memory.measure(mask_memory.random_masks(2, PACKER))


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


def test_a_run_that_is_not_planned_is_named(tiny_inputs):
    with pytest.raises(UserError, match="study tiny has no run 'er'"):
        mask_memory.main("tiny", ["er"])
