"""What all tests share."""

import contextlib
import copy
import gc
import math
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
import yaml
from benchmarks.reference import import_torchvision
from support import PROJECT, Said, Twf, pretrain, split_pictures

from twf import checkout, cli, files, study
from twf.data import store
from twf.data.prepare import prepare
from twf.jobs import checkpoints
from twf.jobs.checkpoints import Checkpoint
from twf.jobs.resume import STOPPING, Keeper
from twf.learning import loop
from twf.learning.loop import Outcome
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import CPU, seeded
from twf.study import Run, params, reading
from twf.study.methods import METHODS, SWITCHES
from twf.tracking.live import LiveTracker

OUTCOMES: dict[str, Outcome] = {}  # by method
HANDLERS = {number: signal.getsignal(number) for number in STOPPING}

checkout.refuse_other_code(PROJECT)  # else these tests would try another checkout's code

# What started the suite set these for itself, not for what the tests start.
for name in list(os.environ):
    if name.startswith(("WANDB_", "TWF_", "MAKE", "UV_NO_", "FORCE_COLOR", "GIT_")):
        del os.environ[name]
torch.set_num_threads(1)  # the suite runs one process per core
slow = [hypothesis.HealthCheck.too_slow]  # a slow machine is no failure
hypothesis.settings.register_profile(
    "twf", deadline=None, suppress_health_check=slow, derandomize=True
)
hypothesis.settings.load_profile("twf")


def pytest_collection_finish() -> None:
    """What is imported by now stays: to collect garbage takes half a second less each time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _handlers() -> None:
    """A process whose run is done ignores signals; that of the tests does not."""
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


@pytest.fixture
def twf(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Twf:
    """`twf(words)` calls the command in this process."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["twf", *words.split()])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as left:
            code = int(left.code or 0)
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture(params=["seed0", "seed1"])
def golden(request: pytest.FixtureRequest):
    """`golden(name)` gives the arrays of one golden case as float64 (or integer) tensors."""

    def load(name: str) -> dict[str, torch.Tensor]:
        with np.load(PROJECT / "tests/golden" / request.param / f"{name}.npz") as arrays:
            return {key: torch.as_tensor(arrays[key]) for key in arrays.files}

    return load


@pytest.fixture(params=[torch.float64, torch.float32], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture
def close(dtype: torch.dtype):
    """Assert that a value agrees with a golden one, to the dtype's tolerance."""
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-4}[dtype]

    def check(value: torch.Tensor, golden_value: torch.Tensor) -> None:
        values = value.detach().double(), golden_value.double()
        torch.testing.assert_close(*values, rtol=tolerance, atol=tolerance)

    return check


@pytest.fixture
def float64() -> Iterator[None]:
    """Double precision for what the test makes."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def torchvision():
    """torchvision, as a slow and obvious reference for what we batch."""
    import_torchvision()
    return sys.modules["torchvision"]


# A miniature of everything: 4 classes in 2 tasks, 16 pixels, a network of width 4.

TINY: dict[str, Any] = yaml.safe_load("""
study: tiny
tracking: {mode: "off"}
datasets:
  target: &images
    title: Target
    reader: archive
    file: archives/target.npz
    classes: 4
    size: 16
    augmentation: {padding: 2, mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}
  origin: {<<: *images, title: Origin, file: archives/origin.npz, classes: 3}
sources:
  origin:
    network: {architecture: resnet18, width: 4}
    data: origin
    pretraining: {epochs: 1, batch_size: 8, lr: 0.05, schedule: cosine}
benchmarks:
  split-target:
    title: Split Target
    data: target
    tasks: 2
    source: origin
    epochs: 2
    batch_size: 8
    buffers: [16]
studies:
  tiny:
    title: A miniature
    seeds: [0]
    experiments: {main: {title: Accuracy, benchmarks: [split-target]}}
""")
TINY["fidelity"] = dict.fromkeys(SWITCHES, "published")
VALUES = {"lr": 0.05, "batch_size": 8, "chunks": 2, "fisher_images": 6}  # of hyperparameters
TINY["benchmarks"]["split-target"]["methods"] = {
    name: {key: VALUES.get(key, 0.5) for key in method.hyperparameters.model_fields}
    for name, method in METHODS.items()
}
TINY["studies"]["tiny"]["experiments"]["main"]["methods"] = list(METHODS)
TINY["datasets"]["origin"] = copy.deepcopy(TINY["datasets"]["origin"])  # nothing shared


@pytest.fixture
def tiny_values() -> dict[str, Any]:
    """The miniature `params.yaml` as plain values, for a test to change."""
    return copy.deepcopy(TINY)


@pytest.fixture
def tiny_run() -> Callable[..., Run]:
    """`tiny_run(method, **changes)`: the miniature study's run of a method; keywords change it."""

    def make(method: str, **changes: Any) -> Run:
        planned = study.expand(reading.check(TINY), "tiny")
        (run,) = [run for run in planned.runs.values() if run.method == method]
        values = run.hyperparameters.changed(changes.pop("hyperparameters", {}))
        return run.model_copy(update=changes | {"hyperparameters": values})

    return make


def tiny_set(classes: int) -> store.Dataset:
    """Miniature data, as `twf.data.store.load` gives them."""
    arrays = {key: torch.from_numpy(array) for key, array in split_pictures(classes).items()}
    splits = (arrays[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    return store.Dataset([str(i) for i in range(classes)], *splits, "", "")


@pytest.fixture
def tiny_dataset() -> store.Dataset:
    """The miniature benchmark's data."""
    return tiny_set(4)


@pytest.fixture
def tiny_source() -> store.Dataset:
    """The miniature source's data."""
    return tiny_set(3)


@pytest.fixture
def deep() -> None:
    """Networks of the test have the paper's depth, whatever they are made for."""


def is_shallow(request: pytest.FixtureRequest) -> bool:
    return "shallow" in request.fixturenames and "deep" not in request.fixturenames


@pytest.fixture
def shallow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks have one block a stage, and take half the time; but for a test that asks `deep`."""
    if not is_shallow(request):
        return
    make = ResNet.__init__

    def cut(network: ResNet, *words: Any, **named: Any) -> None:
        make(network, *words, **named)
        for stage in ("layer1", "layer2", "layer3", "layer4"):
            setattr(network, stage, getattr(network, stage)[:1])

    monkeypatch.setattr(ResNet, "__init__", cut)


@pytest.fixture
def tiny_checkpoint(tiny_run: Callable[..., Run], shallow: None) -> Checkpoint:
    """A shallow network of random weights, always the same, in place of a pretrained one."""
    with seeded(0, "tiny checkpoint"):
        network = ResNet(tiny_run("finetune").network, classes=3)
    return Checkpoint(network.state_dict(), about={})


@pytest.fixture
def tiny_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with the miniature study, nothing made yet; the test is in it."""
    folder = tmp_path / "project"
    (folder / "archives").mkdir(parents=True)
    for dataset in TINY["datasets"].values():
        np.savez(folder / dataset["file"], **split_pictures(dataset["classes"]))
    (folder / "params.yaml").write_text(yaml.safe_dump(TINY, sort_keys=False))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def _tiny_products(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data and the pretrained network of the miniature project, made once."""
    folder = tmp_path_factory.mktemp("tiny")
    loaded = reading.check(TINY)
    with contextlib.chdir(folder):
        for name, dataset in loaded.datasets.items():
            files.ARCHIVES.mkdir(exist_ok=True)
            np.savez(dataset.file, **split_pictures(dataset.classes))
            prepare(name, dataset, files.data_file(name))
        pretrain(loaded, "origin", CPU)
    return folder


@pytest.fixture
def tiny_inputs(
    _tiny_products: Path, tiny_project: Path, request: pytest.FixtureRequest
) -> params.Params:
    """The parameters of the miniature project, its data and checkpoint made; the test is in it."""
    shutil.copytree(_tiny_products, tiny_project, dirs_exist_ok=True)
    loaded = reading.load(files.PARAMS)
    if is_shallow(request):
        path, shape = files.checkpoint_file("origin"), loaded.sources["origin"].network
        made = checkpoints.load(path, shape)
        network = ResNet(shape, classes=3)
        network.load_state_dict(made.tensors, strict=False)  # without what it lacks
        checkpoints.save(path, network, made.about)
    return loaded


@pytest.fixture
def lasting() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """`lasting(row)`: a record without what differs each time: clocks, memory, machine."""

    def without_times(row: dict[str, Any]) -> dict[str, Any]:
        passing = ("seconds", "started", "peak_memory_mib", "host", "device")
        history = [{k: v for k, v in e.items() if k != "seconds"} for e in row["history"]]
        return {k: v for k, v in row.items() if k not in passing} | {"history": history}

    return without_times


@pytest.fixture
def train(tiny_run, tiny_dataset, tiny_source, tiny_checkpoint, tmp_path) -> Callable[..., Outcome]:
    """`train(method, **changes)`: the miniature run of a method; keywords change the run.

    It starts anew, unless it is given a keeper that has saved it before. What it gives is without
    clock times, and so the same each time.
    """

    def once(
        method: str,
        keeper: Keeper | None = None,
        device: torch.device = CPU,
        execution: str = "plain",
        dataset: store.Dataset = tiny_dataset,
        **changes: Any,
    ) -> Outcome:
        run = tiny_run(method, **changes)
        source = None if run.source_data is None else tiny_source
        if keeper is None:
            keeper = Keeper(tmp_path / "fresh" / "state.safetensors", {}, math.inf)
            keeper.done()
        told = LiveTracker(), lambda *_: None, keeper
        weights = tiny_checkpoint.tensors
        outcome = loop.train(run, dataset, source, weights, device, *told, execution)
        for entry in outcome.history:
            del entry["seconds"]
        return outcome

    return once


@pytest.fixture
def whole(train: Callable[..., Outcome]) -> Callable[[str], Outcome]:
    """`whole(method)`: what the miniature run of a method gives, trained once for all tests."""

    def once(method: str) -> Outcome:
        if method not in OUTCOMES:
            OUTCOMES[method] = train(method)
        return OUTCOMES[method]

    return once
