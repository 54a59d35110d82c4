"""The benchmarks at their smallest: what rows say, not how many seconds."""

from __future__ import annotations

import json
import multiprocessing
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
from benchmarks import __main__ as command
from benchmarks import (
    ceiling,
    hotspots,
    loading,
    parts,
    reference,
    report,
    sharing,
    steps,
)
from benchmarks.shapes import planned
from benchmarks.timing import Effort, Times, interleaved, resident_mib

from twf.errors import UserError
from twf.study import Run, reading
from twf.study.methods import METHODS
from twf.study.params import Params

CPU = torch.device("cpu")

pytestmark = pytest.mark.usefixtures("shallow")

SMALLEST = Effort(calls=1, repeats=1)
WORDS = ["benchmarks", "steps", "--benchmark", "none", "--calls", "1", "--repeats", "1"]
LIMITS = {"gflops": 100.0, "gigabytes_per_second": 10.0}

# Stands in for a checkout of the published code: the same modules, the least that is asked of them.
CHECKOUT = {
    "datasets/__init__.py": """
import torch

class Dataset:
    N_CLASSES_PER_TASK = 2
    TRANSFORM = staticmethod(lambda image: torch.zeros(3, *image.size))
    get_transform = staticmethod(lambda: None)

def get_dataset(arguments):
    assert arguments.dataset == "seq-cifar10"
    return Dataset()
""",
    "backbone/ResNet18.py": """
import torch

widths = []

def resnet18(classes, nf):
    widths.append(nf)
    return torch.nn.Linear(3 * 32 * 32, classes)
""",
    "models/__init__.py": "",
    "models/sgd.py": """
from argparse import ArgumentParser
import cv2  # where it is not installed, a step does without
import torch

steps = []  # the highest label of each

def get_parser():
    parser = ArgumentParser()
    for name in ("dataset", "model", "lr", "batch_size", "n_epochs", "pre_dataset"):
        parser.add_argument(f"--{name}", required=True)
    return parser

class Sgd:
    NAME = "sgd"
    device = torch.device("cpu")

    def __init__(self, backbone, loss, arguments, transform):
        self.net, self.loss = backbone, loss

    def begin_task(self, dataset):
        self.load_initial_checkpoint()

    def observe(self, inputs, labels, not_augmented):
        assert inputs.shape == not_augmented.shape
        steps.append(int(labels.max()))
        self.loss(self.net(inputs.flatten(1)), labels).backward()
""",
}


@pytest.fixture(autouse=True)
def _forks(monkeypatch):
    """Processes of a measurement are forks here, which need not import torch again."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: fork)


@pytest.fixture(autouse=True)
def _small_matrices(monkeypatch):
    """Large ones take minutes in bfloat16 on a CPU that has no unit for it."""
    monkeypatch.setitem(ceiling.SIDE, "cpu", 128)


@pytest.fixture
def params(tiny_values) -> Params:
    return reading.check(tiny_values)


@pytest.fixture
def run(params) -> Run:
    return planned(params, "split-target", "twf")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_step_of_its_second_task(params, name):
    steps.second_task_step(params, planned(params, "split-target", name), "plain", CPU)()


def test_a_row_of_a_step_says_what_was_measured_and_how_fast(params, run):
    (row,) = steps.measure(params, run, ["plain"], "fp32", None, CPU, SMALLEST, LIMITS)
    said = {"measurement": "training step", "benchmark": "split-target", "method": "twf"}
    assert row.items() >= (said | {"execution": "plain", "precision": "fp32", "images": 8}).items()
    assert row["images_per_second"] == pytest.approx(8 / row["milliseconds"] * 1000)
    seconds = row["milliseconds"] / 1000
    assert row["share_of_product"] == pytest.approx(row["gigaflop"] / seconds / 100)
    assert row["share_of_copy"] == pytest.approx(row["gigabytes"] / seconds / 10)
    assert row["peak_memory_mib"] > 10
    assert "times_reference" not in row


def test_hot_spots_are_those_of_a_step_and_the_longest_first(params, run):
    every, *longest = hotspots.measure(params, run, ["plain"], "fp32", CPU, SMALLEST)
    assert every["operation"] == "all" and every["share"] > 0
    assert len(longest) == hotspots.SHOWN
    times = [row["milliseconds"] for row in longest]
    assert times == sorted(times, reverse=True) and sum(times) <= every["milliseconds"]
    assert sum(row["calls"] for row in longest) < every["calls"]
    assert "aten::convolution_backward" in {row["operation"] for row in longest}
    assert longest[0]["share"] == longest[0]["milliseconds"] / every["milliseconds"]


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    for name, text in CHECKOUT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    yield tmp_path
    for name in ("backbone", "backbone.ResNet18", "datasets", "models", "models.sgd"):
        sys.modules.pop(name, None)


def test_a_ratio_is_the_quotient_of_its_parts(params, checkout, torchvision):
    run = planned(params, "split-target", "finetune")
    run = run.model_copy(update={"benchmark": "split-cifar10"})
    theirs, ours = steps.measure(
        params, run, ["plain"], "fp32", checkout, CPU, Effort(calls=2, repeats=2), LIMITS
    )
    assert (theirs["execution"], ours["execution"]) == ("published code", "plain")
    assert ours["times_reference"] == theirs["milliseconds"] / ours["milliseconds"]
    quotient = theirs["processor_milliseconds"] / ours["processor_milliseconds"]
    assert ours["times_reference_processor"] == quotient
    made = sys.modules["models.sgd"].steps
    first, second = made[: reference.FIRST_STEPS], made[reference.FIRST_STEPS :]
    assert max(first) <= 1 and min(second) >= 2, "what is timed is in the second task"
    assert len(second) == 2 + 2 * 2
    assert sys.modules["backbone.ResNet18"].widths == [run.network.width], "both are as wide"


@pytest.mark.parametrize(
    ("benchmark", "method", "named"),
    [
        ("split-target", "twf", "--reference .*twf on split-target"),
        ("split-cifar10", "derpp-ewc", "--reference .*derpp-ewc on split-cifar10"),
        ("split-cifar10", "twf", "checkout"),
    ],
)
def test_what_cannot_be_compared_is_said(run, tmp_path, benchmark, method, named):
    run = run.model_copy(update={"benchmark": benchmark, "method": method})
    with pytest.raises(UserError, match=named):
        reference.second_task_step(tmp_path, run, CPU)


def test_works_are_called_in_turn_in_every_repeat():
    called = []
    works = {name: lambda name=name: called.append(name) for name in "ab"}
    times = interleaved(works, CPU, Effort(calls=2, repeats=3))
    assert "".join(called) == "aabb" + "aabb" * 3  # once to warm up
    assert [len(t.clock) for t in times.values()] == [3, 3]


def test_a_row_has_the_median_and_the_range():
    row = Times([0.3, 0.1, 0.2], [0.1, 0.1, 0.4]).row()
    expected = {"milliseconds": 200, "fastest": 100, "slowest": 300, "processor_milliseconds": 100}
    assert row == pytest.approx(expected)


def test_flops_and_bytes_are_those_of_the_operations():
    a, b = torch.ones(10, 20), torch.ones(20, 30)
    counted = ceiling.count(lambda: (a @ b).t())  # a view is free
    assert counted["operations"] == 1
    assert counted["gigaflop"] == pytest.approx(2 * 10 * 20 * 30 / 1e9)
    assert counted["gigabytes"] == pytest.approx(4 * (10 * 20 + 20 * 30 + 10 * 30) / 1e9)


def test_the_parts_have_rates(params, run):
    limits = ceiling.measure("bf16", CPU, SMALLEST)
    rows = [
        parts.pretraining(params, run, "plain", "bf16", CPU, SMALLEST, limits),
        *parts.replay(params, run, CPU, SMALLEST),
        parts.evaluation(params, run, CPU, SMALLEST),
    ]
    for row in rows:
        rate = row["images"] / row["milliseconds"] * 1000
        assert row["images_per_second"] == pytest.approx(rate)
    assert len({row["measurement"] for row in rows}) == 6
    assert limits["precision"] == rows[0]["precision"] == "bf16"
    seconds = rows[0]["milliseconds"] / 1000
    share = rows[0]["gigaflop"] / seconds / limits["gflops"]
    assert rows[0]["share_of_product"] == pytest.approx(share)


def test_jobs_that_share_a_device_are_counted_together(params, run, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    (pair,) = sharing.measure(params, run, "plain", "bf16", [2], CPU, seconds=0.05)
    assert pair["images_per_second"] > 0 and pair["times_alone"] == 2.0
    said = {"jobs": 2, "precision": "bf16", "mps": False}
    assert pair.items() >= said.items()
    (tmp_path / "control").touch()
    monkeypatch.setattr(sharing, "_together", lambda *words: {1: 8.0, 2: 12.0}[words[3]])
    one, two = sharing.measure(params, run, "plain", "bf16", [1, 2], CPU)
    assert (one["times_alone"], two["times_alone"]) == (1.0, 1.5)
    assert (one["jobs"], two["jobs"], two["mps"]) == (1, 2, True)


def test_loading_is_held_to_its_limits(monkeypatch):
    row = loading.measure(Effort(repeats=1), scale=0.02)
    assert row["images"] == 1200
    assert row["arrays_mib"] == pytest.approx(1200 * (3072 + 8) / 2**20)
    for seconds, growth, within in ((0.4, 3.5, True), (0.6, 3.5, False), (0.4, 3.6, False)):
        found = {"seconds": seconds, "growth_mib": growth}
        monkeypatch.setattr(loading, "in_fresh_process", lambda *_, found=found: found)
        assert loading.measure(Effort(repeats=1), scale=0.02)["within_limits"] == within


def test_the_command_prints_and_keeps_rows_with_where_they_come_from(
    tiny_project, monkeypatch, capsys
):
    monkeypatch.setattr(report, "RESULTS", tiny_project / "kept")
    command.main(
        [command.Measurement.REPLAY], benchmark=["split-target"], calls=1, repeats=1, name="here"
    )
    kept = json.loads((tiny_project / "kept" / "here.json").read_text())
    assert kept.keys() == {"device", "gpu", "versions", "commit", "date", "rows"}
    measured = [row["measurement"] for row in kept["rows"]]
    assert measured == [
        "ceiling",
        "buffer insertion",
        "buffer draw",
        "mask packing",
        "mask unpacking",
    ]
    assert {row["threads"] for row in kept["rows"]} == {1}
    assert "mask packing" in capsys.readouterr().out


def test_a_mistake_is_a_message_and_not_a_traceback(tiny_project, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", WORDS)
    monkeypatch.delitem(sys.modules, "benchmarks.__main__")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("benchmarks", run_name="__main__")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "none" in said and said.count("\n") == 1


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
def test_memory_is_measured_on_any_system(request):
    told = resident_mib()
    request.getfixturevalue("macos")
    assert resident_mib() == pytest.approx(told, rel=0.2)
    assert resident_mib(peak=True) > 0
