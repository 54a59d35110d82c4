"""Captured steps against plain ones, and what a step may not do."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from twf.errors import UserError
from twf.learning import loop, tasks
from twf.learning import precision as precisions
from twf.learning.evaluation.accuracy import to_device
from twf.learning.methods import make
from twf.learning.methods.base import Method, Task
from twf.learning.precision import set_precision
from twf.learning.pretraining import supervised
from twf.learning.randomness import CPU
from twf.learning.replay.buffer import ReservoirBuffer
from twf.learning.state import capture, flatten, restore
from twf.learning.step import Captured, CaptureError, Plain
from twf.study import reading
from twf.study.methods import METHODS

RATE = 0.125  # a power of two: as a number and as a tensor, the update has the same bits
ALL = [*METHODS, "pretraining"]
Made = tuple[Method[Any], list[Task]]
Way = Callable[[Method[Any]], Plain]


@pytest.fixture
def make_method(
    tiny_run, tiny_values, tiny_dataset, tiny_source, tiny_checkpoint
) -> Callable[..., Made]:
    """`make_method(name, device)`: a method of the miniature study, or what pretrains its source.

    And its phases.
    """

    def one(name: str, device: torch.device = CPU, **changes: Any) -> Made:
        if name == "pretraining":
            checked = reading.check(tiny_values)
            method = supervised(checked.sources["origin"], checked.datasets["origin"], device)
            images = to_device(tiny_source.train_images, device)
            return method, [Task(0, images, tiny_source.train_labels.to(device))]
        run = tiny_run(name, **changes)
        source = tiny_source if run.source_data is not None else None
        learner = loop.make_learner(run, tiny_dataset, source, tiny_checkpoint.tensors, device)
        method = make(name, learner, run.hyperparameters)
        images = to_device(tiny_dataset.train_images, device)
        labels = tiny_dataset.train_labels.to(device)
        parts = tasks.split(labels, run.tasks, run.classes)
        return method, method.phases([Task(i, images[p], labels[p]) for i, p in enumerate(parts)])

    return one


def phases(made: Made, way: Plain, count: int) -> Iterator[list[Tensor]]:
    """Begin and end each phase; gives its first `count` batches in between."""
    method, tasks = made
    for task in tasks:
        for module in method.modules():
            module.train()
        method.begin_task(task)
        images, labels = method.training_set(task)
        way.begin(images, labels)
        order = method.learner.generators["order"].permutation(len(images))
        yield list(order.repeat(count).split(method.learner.batch_size))[:count]
        method.end_task(task)


def outcome(make_way: Way, made: Made, count: int = 4) -> tuple[list[dict[str, Tensor]], Any]:
    """The terms of `count` steps in each phase, and all that the method is in the end."""
    way = make_way(made[0])
    terms = [
        {name: value.clone() for name, value in way.step(index, RATE).items()}
        for batches in phases(made, way, count)
        for index in batches
    ]
    buffer, tensors = made[0].buffer, {}
    for rows in {} if buffer is None else buffer.rows.values():
        rows[-1:] = 0  # where all go that are not kept: on a GPU in any order
    flatten(capture(made[0]), tensors)
    return terms, tensors


def addresses(method: Method[Any]) -> list[tuple[Any, ...]]:
    """Where all tensors of a method lie."""
    held = [
        part.state_dict() if isinstance(part, nn.Module) else getattr(part, "rows", part)
        for part in (method.learner.network, *vars(method).values())
    ]
    leaves = [leaf for leaf in tree_leaves(held) if isinstance(leaf, Tensor)]
    return [(leaf.data_ptr(), leaf.stride()) for leaf in leaves]


@pytest.mark.parametrize("name", ALL)
def test_what_refers_to_a_method_s_tensors_still_does_when_it_is_restored(name, make_method):
    """A method that is restored is what it was, in the same places of memory."""
    made = method, _ = make_method(name)
    way = Plain(method)
    for batches in phases(made, way, 3):
        for index in batches[:2]:
            way.step(index, RATE)
        before, tensors, again = addresses(method), {}, {}
        saved = flatten(capture(method), tensors)
        way.step(batches[2], RATE)
        restore(method, saved, tensors)
        assert flatten(capture(method), again) == saved and addresses(method) == before
        torch.testing.assert_close(again, tensors, rtol=0, atol=0)


class Recording:
    """Stands in for a CUDA graph: what is captured is not done then, but at each replay."""

    made: ClassVar[int] = 0
    way: ClassVar[Captured]

    def __init__(self) -> None:
        Recording.made += 1
        self.registered: list[torch.Generator] = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.registered.append(generator)

    def replay(self) -> None:
        way = Recording.way
        for name, value in way._step(way.index, way.rate).items():
            way.terms[name].copy_(value)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Way:
    """`recorded(method)`: captured steps on a CPU, with a stand-in for all that CUDA does."""

    @contextlib.contextmanager
    def graph(made: Recording, stream: Any) -> Iterator[None]:
        method, tensors = Recording.way.method, {}
        generators = [random.generator for random in method.learner.generators.values()]
        assert made.registered == generators
        before = flatten(capture(method), tensors)
        yield
        assert len(method.learner.generators) == len(generators)
        restore(method, before, tensors)

    monkeypatch.setattr(Recording, "made", 0)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    for name in ("Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())

    def way(method: Method[Any]) -> Captured:
        device, method.learner.device = method.learner.device, torch.device("cuda")
        Recording.way = Captured(method)
        method.learner.device = device
        return Recording.way

    return way


@pytest.mark.parametrize("name", ALL)
def test_what_a_captured_step_does_around_its_graph_changes_nothing(name, make_method, recorded):
    """Of CUDA itself it says nothing: the tests below do."""
    made = make_method(name)
    captured, plain = outcome(recorded, made), outcome(Plain, make_method(name))
    torch.testing.assert_close(captured, plain, rtol=0, atol=0)
    assert Recording.made == len(made[1])


def test_a_capture_that_cuda_refuses_says_why(make_method, recorded, monkeypatch):
    @contextlib.contextmanager
    def refusing(*_: Any, **__: Any) -> Iterator[None]:
        yield
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(torch.cuda, "graph", refusing)
    with pytest.raises(CaptureError, match="stream is capturing$"):
        outcome(recorded, make_method("er"))


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@on_a_gpu
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ALL)
def test_on_a_gpu_a_captured_step_does_as_a_plain_one(name, make_method):
    """In double precision: there, no rounding grows."""
    cuda = torch.device("cuda")
    plain, captured = (outcome(way, make_method(name, cuda)) for way in (Plain, Captured))
    torch.testing.assert_close(captured, plain, rtol=1e-6, atol=1e-9)


class _NothingReturns(TorchDispatchMode):
    """Refuses operations whose result, or its shape, the host would have to wait for.

    And tensors made of the host's numbers, which it would have to send.
    """

    refused = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "bincount")

    def __torch_dispatch__(
        self, operation: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        name = operation._schema.name.removeprefix("aten::")
        assert not name.startswith(self.refused), f"{name} makes the host wait"
        assert name != "lift_fresh", "a tensor of the host's numbers is sent"
        if name.startswith("index"):
            for index in arguments[1]:
                assert index is None or index.dtype != torch.bool, f"{name} by a mask"
        return operation(*arguments, **(options or {}))


@pytest.mark.parametrize("name", ALL)
def test_nothing_of_a_step_goes_between_host_and_device(name, make_method):
    """Neither values nor shapes that depend on them: so a step can be captured."""
    made = make_method(name)
    way = Plain(made[0])
    for batches in phases(made, way, 3):
        # a tensor that names no device fits no other
        with torch.device("meta"), _NothingReturns():
            for index in batches:
                way.step(index, 0.01)


def test_the_guard_of_that_test_refuses_what_it_is_to_refuse():
    values = torch.arange(3.0)
    for wait in (values.sum().item, values.nonzero, lambda: values[values > 0]):
        with pytest.raises(AssertionError), _NothingReturns():
            wait()


@pytest.mark.parametrize("name", METHODS)
def test_bf16_rounds_the_network_and_not_weights_and_losses(name, make_method):
    made, exact = (make_method(name, precision=precision) for precision in ("bf16", "tf32"))
    (first, *terms), (second, *_) = (outcome(Plain, each, 2)[0] for each in (made, exact))
    assert first != second
    for value in (value for step in (first, *terms) for value in step.values()):
        assert value.isfinite() and value.dtype == torch.float32
    assert {p.dtype for p in made[0].learner.network.parameters()} == {torch.float32}


@pytest.mark.parametrize(("has_unit", "on_cpu"), [(True, "bf16"), (False, "tf32")])
def test_auto_is_bf16_on_a_cpu_that_has_a_unit_for_it(monkeypatch, has_unit, on_cpu):
    monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda: has_unit)
    assert set_precision("auto", CPU) == on_cpu
    assert set_precision("auto", torch.device("cuda")) == "tf32"
    with pytest.raises(UserError, match="'fp8'"):
        set_precision("fp8", CPU)
    for name in ("fp32", "bf16", "tf32"):
        set_precision(name, CPU)
        flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        assert set(flags) == {name != "fp32"}


def test_numbers_that_are_equal_are_each_saved(make_method):
    """Small ones are one object, which is no sign of one thing with two names."""
    method, _ = make_method("er")
    method.task = method.done = 1
    assert capture(method)["method"].items() >= {"task": 1, "done": 1}.items()
    assert sum(isinstance(v, ReservoirBuffer) for v in capture(method)["method"].values()) == 1
