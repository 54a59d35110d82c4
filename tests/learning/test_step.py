"""Steps compiled and captured against plain ones, and what a step may not do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from twf.data.store import Dataset
from twf.errors import UserError
from twf.gpus import cpu
from twf.jobs.checkpoints import Checkpoint
from twf.learning import loop, tasks
from twf.learning import precision as precisions
from twf.learning.evaluation.accuracy import to_device
from twf.learning.methods import make
from twf.learning.methods.base import Method, Task
from twf.learning.models.gates import FeaturePropagation
from twf.learning.precision import set_precision
from twf.learning.pretraining import supervised
from twf.learning.randomness import Generators
from twf.learning.replay.buffer import ReservoirBuffer
from twf.learning.state import capture, flatten, restore
from twf.learning.step import Captured, CaptureError, Compiled, Plain, executed
from twf.study import Run, reading
from twf.study.methods import METHODS

STATES = 20  # along a run
RATE = 1.0  # of the steps that are compared: parameters move by the gradient
TOLERANCE = 1e-4  # relative
CPU = torch.device("cpu")
ALL = [*METHODS, "pretraining"]
Make = Callable[..., tuple[Method[Any], list[Task]]]


@pytest.fixture
def make_method(
    tiny_run: Callable[..., Run],
    tiny_values: dict[str, Any],
    tiny_dataset: Dataset,
    tiny_source: Dataset,
    tiny_checkpoint: Checkpoint,
) -> Make:
    """`make_method(name, device)`: a method of the miniature study, or what pretrains its source.

    And its phases.
    """

    def pretraining(device: torch.device) -> Any:
        checked = reading.check(tiny_values)
        method = supervised(checked.sources["origin"], checked.datasets["origin"], device)
        images = to_device(tiny_source.train_images, device)
        return method, [Task(0, images, tiny_source.train_labels.to(device))]

    def one(name: str, device: torch.device = CPU, **changes: Any) -> Any:
        if name == "pretraining":
            return pretraining(device)
        run = tiny_run(name, **changes)
        source = tiny_source if run.source_data is not None else None
        learner = loop.make_learner(run, tiny_dataset, source, tiny_checkpoint.tensors, device)
        method = make(name, learner, run.hyperparameters)
        images = to_device(tiny_dataset.train_images, device)
        labels = tiny_dataset.train_labels.to(device)
        parts = tasks.split(labels, run.tasks, run.classes)
        return method, method.phases([Task(i, images[p], labels[p]) for i, p in enumerate(parts)])

    return one


def phases(
    method: Method[Any], tasks: list[Task], *ways: Plain, states: int = STATES
) -> Iterator[list[Tensor]]:
    """Begin and end each phase, with every way to execute it; gives its batches in between.

    Over all phases there is a batch for each state, and one before them.
    """
    for task in tasks:
        for module in method.modules():
            module.train()
        method.begin_task(task)
        images, labels = method.training_set(task)
        for way in ways:
            way.begin(images, labels)
        order = method.learner.generators["order"].permutation(len(images))
        count = -(-(states + 1) // len(tasks)) - (task.number > 0)
        yield list(order.repeat(count).split(method.batch_size))[:count]
        method.end_task(task)


def parts(value: Any) -> Iterator[Tensor]:
    """All tensors of a method's state."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.state_dict().values()
    elif isinstance(value, ReservoirBuffer):
        # but for the last row, where all go that are not kept: on a GPU in any order
        yield from (value.seen, *(rows[:-1] for rows in value.rows.values()))
    elif isinstance(value, dict):
        for part in value.values():
            yield from parts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from parts(part)


def state(method: Method[Any]) -> list[Tensor]:
    """The method's tensors themselves, where it has them."""
    found = capture(method)
    return [*parts(found["network"]), *parts(found["method"])]


class Snapshot:
    """A method as it is now, to go back to, in the same places of memory."""

    def __init__(self, method: Method[Any]) -> None:
        self.random = list(method.learner.generators.values())
        self.tensors = state(method)
        self.values = [tensor.clone() for tensor in self.tensors]
        self.states = [random.generator.get_state() for random in self.random]

    def restore(self) -> None:
        for tensor, value in zip(self.tensors, self.values, strict=True):
            tensor.copy_(value)
        for random, generator_state in zip(self.random, self.states, strict=True):
            random.generator.set_state(generator_state)


@torch.no_grad()
def after(way: Plain, index: Tensor, before: Snapshot) -> tuple[dict[str, Tensor], list[Tensor]]:
    """A step's terms and by how much it changes each tensor; the method is then what it was."""
    with torch.enable_grad():
        terms = {name: value.clone() for name, value in way.step(index, RATE).items()}
    changes = [
        tensor.double() - value.double()
        for tensor, value in zip(before.tensors, before.values, strict=True)
    ]
    before.restore()
    return terms, changes


def distance(one: list[Tensor], other: list[Tensor]) -> float:
    """How far changes are apart: the worst tensor, relative to it, and a bit to all changes."""
    scale = torch.stack([change.norm() for change in one]).norm()
    assert scale > 0
    return max(
        float((found - expected).norm() / (expected.norm() + 1e-3 * scale))
        for expected, found in zip(one, other, strict=True)
    )


def difference(one: Any, other: Any) -> float:
    """How far the changes of two steps are apart, whose terms differ by at most `TOLERANCE`."""
    assert one[0].keys() == other[0].keys()
    for name, value in one[0].items():
        torch.testing.assert_close(other[0][name], value, rtol=TOLERANCE, atol=1e-6)
    return distance(one[1], other[1])


def differences(
    make_way: Callable[[Method[Any]], Plain], made: Any, states: int = STATES
) -> list[float]:
    """How far a step of another way is from a plain one, at states along a run of plain steps."""
    method, tasks = made
    plain, other = Plain(method), make_way(method)
    rate = method.learning_rate(0.0)
    found = []
    for batches in phases(method, tasks, plain, other, states=states):
        for number, index in enumerate(batches):
            if not (method.task == 0 and number == 0):  # the first step is always plain
                before = Snapshot(method)
                one, another = after(plain, index, before), after(other, index, before)
                found.append(difference(one, another))
            plain.step(index, rate)
    assert len(found) == states
    return found


def hold_to_plain(
    make_way: Callable[[Method[Any]], Plain], made: Any, states: int = STATES
) -> None:
    """Steps of another way do as plain ones.

    In float32 a gate or a ReLU may stand so near to its threshold that rounding decides, and part
    of a gradient with it: changing all weights by 1e-7 shows the same, at about one state of 20.
    """
    found = differences(make_way, made, states)
    assert sum(value > TOLERANCE for value in found) <= 2, found


@pytest.mark.parametrize("name", ALL)
def test_what_refers_to_a_method_s_tensors_still_does_when_it_is_restored(name, make_method):
    """A method that is restored is what it was, in the same places of memory."""
    method, tasks = make_method(name)
    way = Plain(method)
    for batches in phases(method, tasks, way):
        for index in batches[:2]:
            way.step(index, RATE)
        there, tensors = state(method), {}
        values = [tensor.clone() for tensor in there]
        saved = flatten(capture(method), tensors)
        way.step(batches[2], RATE)
        restore(method, saved, tensors)
        for tensor, value, now in zip(there, values, state(method), strict=True):
            assert torch.equal(now, value)
            assert (now.data_ptr(), now.stride()) == (tensor.data_ptr(), tensor.stride())


@pytest.fixture
def compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """What is compiled from now on: traced, differentiated and decomposed as ever.

    But for the machine code, which takes minutes: the graphs are executed as they are.
    """
    traced: list[torch.fx.GraphModule] = []
    finish = torch._dynamo.lookup_backend("aot_eager_decomp_partition")

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        traced.append(graph)
        return finish(graph, inputs)

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    return traced


def test_what_is_compiled_has_one_graph_and_draws_as_the_plain_step(make_method, compiler, graphs):
    hold_to_plain(Compiled, make_method("er"), states=8)
    assert len(graphs) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*ALL} - {"er"}))
def test_a_compiled_step_does_as_a_plain_one(name, make_method, compiler, graphs):
    hold_to_plain(Compiled, make_method(name), states=8)


@pytest.mark.slow
def test_a_compiled_step_is_a_plain_one_in_double_precision(make_method, compiler, float64):
    """With its machine code, of which TwF has all kinds: minutes to compile."""
    assert max(differences(Compiled, make_method("twf"))) < 1e-9


@pytest.mark.slow
@pytest.mark.skipif(not cpu.multiplies_bfloat16(), reason="such steps are refused on this CPU")
@pytest.mark.parametrize("replayed", [0, 32])
def test_a_compiled_gate_in_bfloat16_does_as_a_plain_one(replayed, compiler):
    """On an Intel Xeon without AMX, gradients of both these shapes were seen to be NaN."""
    torch.manual_seed(0)
    layer, shape = FeaturePropagation(5, [16]), (32 + replayed, 16, 32, 32)
    target, student = (
        torch.randn(shape).contiguous(memory_format=torch.channels_last) for _ in range(2)
    )
    student.requires_grad_()
    task = (torch.arange(shape[0]) < 32).long()  # the stream's is the current one
    stored = [(torch.rand(replayed, *shape[1:]) > 0.5).float()] if replayed else None

    def gate(*inputs: Any) -> Any:
        with precisions.autocast("bf16", CPU):
            return layer(*inputs)[:3]

    def results(gate: Callable[..., Any]) -> list[float]:
        random = Generators(0, CPU)["gates"]
        terms = gate([student], [target], task, 32, 1, stored, random)
        gradients = torch.autograd.grad(sum(terms), [student, *layer.parameters()])
        return [float(value.detach().float().norm()) for value in (*terms, *gradients)]

    compiled = torch.compile(gate, fullgraph=True, dynamic=not replayed)
    # of a bias before batch normalisation, the gradient is rounding alone: 0.01
    assert results(compiled) == pytest.approx(results(gate), rel=0.02, abs=0.02)


@pytest.mark.slow
@pytest.mark.skipif(not cpu.multiplies_bfloat16(), reason="such steps are refused on this CPU")
def test_a_compiled_step_in_bfloat16_is_as_near_to_float32_as_a_plain_one(make_method, compiler):
    method, tasks = make_method("twf", precision="bf16")
    plain, compiled = Plain(method), Compiled(method)
    rate = method.learning_rate(0.0)
    for batches in phases(method, tasks, plain, compiled, states=8):
        for number, index in enumerate(batches):
            if not (method.task == 0 and number == 0):
                before = Snapshot(method)
                (_, one), (_, other) = after(plain, index, before), after(compiled, index, before)
                method.learner.precision = "fp32"
                _, exact = after(plain, index, before)
                method.learner.precision = "bf16"
                assert 0 < distance(exact, other) < 2 * distance(exact, one)
            plain.step(index, rate)


class Recording:
    """Stands in for a CUDA graph: what is captured is not done then, but at each replay."""

    made = 0

    def __init__(self) -> None:
        Recording.made += 1
        self.registered: list[torch.Generator] = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.registered.append(generator)

    def replay(self) -> None:
        way = self.way
        for name, value in way._step(way.index, way.rate, way.loss).items():
            way.terms[name].copy_(value)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[[Method[Any]], Captured]:
    """`recorded(method)`: captured steps on a CPU, with a stand-in for all that CUDA does."""
    ways: list[Captured] = []

    @contextlib.contextmanager
    def graph(made: Recording, stream: Any) -> Iterator[None]:
        made.way = ways[-1]
        generators = [r.generator for r in made.way.method.learner.generators.values()]
        assert made.registered == generators
        before = Snapshot(made.way.method)
        yield
        assert len(made.way.method.learner.generators) == len(generators)
        before.restore()

    monkeypatch.setattr(Recording, "made", 0)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "Stream", MagicMock())
    monkeypatch.setattr(torch.cuda, "current_stream", MagicMock())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())

    def way(method: Method[Any]) -> Captured:
        inner, device = Plain(method), method.learner.device
        method.learner.device = torch.device("cuda")
        ways.append(Captured(inner))
        method.learner.device = device
        return ways[-1]

    return way


@pytest.mark.parametrize("name", ALL)
def test_what_a_captured_step_does_around_its_graph_changes_nothing(name, make_method, recorded):
    """Of CUDA itself it says nothing: the tests below do."""
    made = make_method(name)
    assert max(differences(recorded, made, states=4)) == 0
    assert Recording.made == len(made[1])


def test_a_capture_that_cuda_refuses_says_why(make_method, recorded, monkeypatch):
    @contextlib.contextmanager
    def refusing(*_: Any, **__: Any) -> Iterator[None]:
        yield
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(torch.cuda, "graph", refusing)
    method, tasks = make_method("er")
    way = recorded(method)
    for batches in phases(method, tasks[:1], way, states=2):
        way.step(batches[0], RATE)  # the first is plain
        with pytest.raises(CaptureError, match="stream is capturing$"):
            way.step(batches[1], RATE)


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@on_a_gpu
@pytest.mark.parametrize("execution", ["compiled", "compiled-captured"])
@pytest.mark.parametrize("name", ["er", "derpp", "er-ace", "twf", "pretraining"])
def test_a_compiled_step_on_a_gpu_does_as_a_plain_one(name, execution, make_method, compiler):
    set_precision("fp32", torch.device("cuda"))
    made = make_method(name, torch.device("cuda"), precision="fp32")
    hold_to_plain(partial(executed, execution), made, states=8)


@on_a_gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("name", ALL)
def test_a_captured_step_does_as_a_plain_one(name, precision, make_method):
    set_precision(precision, torch.device("cuda"))
    made = make_method(name, torch.device("cuda"), precision=precision)
    hold_to_plain(lambda method: Captured(Plain(method)), made)


@pytest.mark.parametrize("execution", ["captured", "fast"])
def test_steps_are_captured_on_a_gpu_alone_and_no_other_execution_is_known(make_method, execution):
    with pytest.raises(UserError, match=execution):
        executed(execution, make_method("er")[0])


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


@contextlib.contextmanager
def nothing_crosses() -> Iterator[None]:
    """Nothing goes between host and device; a tensor that names no device fits no other."""
    with torch.device("meta"), _NothingReturns():
        yield


@pytest.mark.parametrize("name", ALL)
def test_nothing_of_a_step_goes_between_host_and_device(name, make_method):
    """Neither values nor shapes that depend on them: so a step can be captured."""
    method, tasks = make_method(name)
    way = Plain(method)
    for batches in phases(method, tasks, way):
        with nothing_crosses():
            for index in batches[:3]:
                way.step(index, 0.01)


def test_the_guard_of_that_test_refuses_what_it_is_to_refuse():
    values = torch.arange(3.0)
    for wait in (values.sum().item, values.nonzero, lambda: values[values > 0]):
        with pytest.raises(AssertionError), _NothingReturns():
            wait()


def test_bf16_rounds_the_network_and_not_the_weights(make_method):
    steps = {}
    for precision in ("tf32", "bf16"):
        method, tasks = make_method("derpp", precision=precision)
        way = Plain(method)
        (index, *_), *_ = phases(method, tasks[:1], way)
        steps[precision] = way.step(index, 0.01)["stream"].item()
        assert {p.dtype for p in method.learner.network.parameters()} == {torch.float32}
    assert steps["bf16"] != steps["tf32"]
    assert steps["bf16"] == pytest.approx(steps["tf32"], rel=0.05)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_in_bf16(name, make_method):
    method, tasks = make_method(name, precision="bf16")
    way = Plain(method)
    for batches in phases(method, tasks, way):
        for index in batches[:2]:
            terms = way.step(index, 0.01)
            assert all(value.isfinite() for value in terms.values()), terms
            assert {value.dtype for value in terms.values()} == {torch.float32}, terms


def test_an_unknown_precision_is_refused():
    with pytest.raises(UserError, match="'fp8'"):
        set_precision("fp8", torch.device("cpu"))


@pytest.mark.parametrize(("has_unit", "on_cpu"), [(True, "bf16"), (False, "tf32")])
def test_auto_is_bf16_on_a_cpu_that_has_a_unit_for_it(monkeypatch, has_unit, on_cpu):
    monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda: has_unit)
    assert set_precision("auto", torch.device("cpu")) == on_cpu
    assert set_precision("auto", torch.device("cuda")) == "tf32"


def test_numbers_that_are_equal_are_each_saved(make_method):
    """Small ones are one object, which is no sign of one thing with two names."""
    method, _ = make_method("er")
    method.task = method.done = 1
    assert capture(method)["method"].items() >= {"task": 1, "done": 1}.items()
    assert len([of for of in capture(method)["method"].values() if of is method.buffer]) == 1
