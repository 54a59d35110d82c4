"""One training step - loss, gradients, update, buffer - and the ways to execute it.

All execute the same method file. `plain` is the definition; the others are held to it by tests.
Nothing of a step returns to the host.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from twf.errors import UserError
from twf.learning.methods.base import Batch, Method, Step
from twf.learning.precision import autocast
from twf.learning.state import capture, flatten, restore
from twf.study.params import EXECUTIONS

Loss = Callable[[Batch], Step]
Terms = dict[str, Tensor]  # each term's value, a scalar
WARM_UP = 3  # steps before a capture, which let libraries choose algorithms and take their memory


class CaptureError(Exception):
    """A step that runs cannot be captured; its message is CUDA's reason."""


def training_step(
    method: Method[Any],
    loss: Loss,
    parameters: list[nn.Parameter],
    batch: Batch,
    rate: float | Tensor,
) -> Terms:
    """Learn from one stream batch, then offer it to the buffer. Gives each term's value."""
    learner = method.learner
    with autocast(learner.precision, learner.device):
        step = loss(batch)
    torch.stack(list(step.terms.values())).sum().backward()
    method.update(parameters, rate)
    if method.buffer is not None and step.store is not None:
        method.buffer.insert(**step.store)
    return {name: value.detach() for name, value in step.terms.items()}


class Plain:
    """Operation by operation, as the method is written."""

    def __init__(self, method: Method[Any]) -> None:
        self.method = method
        self.parameters = [p for module in method.modules() for p in module.parameters()]
        self.loss: Loss = method.loss

    def begin(self, images: Tensor, labels: Tensor) -> None:
        """Begin a phase on its training set, whose tensors stay in place until the next."""
        self.images, self.labels = images, labels

    def step(self, index: Tensor, rate: float) -> Terms:
        """A step on the images at `index` (int64 `[B]`) at a learning rate.

        The terms stand until the next step.
        """
        return self._step(index, rate, self.loss)

    def _step(self, index: Tensor, rate: float | Tensor, loss: Loss) -> Terms:
        batch = Batch(self.images[index], self.labels[index], index)
        return training_step(self.method, loss, self.parameters, batch, rate)


class Compiled(Plain):
    """The loss and its gradients by `torch.compile`, as one graph.

    A run's first step is plain: it makes the buffer's rows, and has no replay.
    """

    def __init__(self, method: Method[Any]) -> None:
        super().__init__(method)
        self.loss = torch.compile(method.loss, fullgraph=True)

    def step(self, index: Tensor, rate: float) -> Terms:
        if not _has_stepped(self.method):
            return self._step(index, rate, self.method.loss)
        return super().step(index, rate)


class Captured(Plain):
    """The whole step, update and buffer too, as one CUDA graph for each phase.

    `inner` is what is captured. Its first steps, and batches of another size (the last of an epoch,
    where a method keeps it), are executed by it.
    """

    def __init__(self, inner: Plain) -> None:
        super().__init__(inner.method)
        if self.method.learner.device.type != "cuda":
            raise UserError("only steps on a GPU are captured: --execution plain or compiled")
        self.inner, self.loss = inner, inner.loss
        # one for all captures: libraries take memory for each stream that they meet, and keep it
        self.aside = torch.cuda.Stream(inner.method.learner.device)

    def begin(self, images: Tensor, labels: Tensor) -> None:
        super().begin(images, labels)
        self.inner.begin(images, labels)
        self.graph: torch.cuda.CUDAGraph | None = None

    def step(self, index: Tensor, rate: float) -> Terms:
        if not _has_stepped(self.method) or len(index) != self.method.batch_size:
            return self.inner.step(index, rate)
        if self.graph is None:
            self._capture(index)
        self.index.copy_(index)
        self.rate.fill_(rate)
        assert self.graph is not None
        self.graph.replay()
        return self.terms

    def _capture(self, index: Tensor) -> None:
        """Record the step's kernels. The method is afterwards what it was before.

        Raises `CaptureError` where CUDA refuses; the method is then of no more use.
        """
        device = index.device
        self.index, self.rate = index.clone(), torch.zeros((), device=device)
        tensors: dict[str, Tensor] = {}
        before = flatten(capture(self.method), tensors)
        self.aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self.aside):
            for _ in range(WARM_UP):
                self._step(self.index, self.rate, self.loss)
        torch.cuda.current_stream(device).wait_stream(self.aside)
        restore(self.method, before, tensors)
        self.graph = torch.cuda.CUDAGraph()
        for random in self.method.learner.generators.values():
            self.graph.register_generator_state(random.generator)
        try:
            with torch.cuda.graph(self.graph, stream=self.aside):
                self.terms = self._step(self.index, self.rate, self.loss)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise CaptureError(str(error).strip().splitlines()[0]) from error


def _has_stepped(method: Method[Any]) -> bool:
    """Whether a step was made: its random numbers have begun, and its buffer has rows."""
    buffer = method.buffer
    filled = buffer is None or buffer.size == 0 or not buffer.empty
    return filled and "augmentation" in method.learner.generators


def executed(execution: str, method: Method[Any]) -> Plain:
    """The steps of a run, executed in one of the ways."""
    if execution not in EXECUTIONS:
        raise UserError(f"no execution {execution!r}; there is {', '.join(EXECUTIONS)}")
    inner = Compiled(method) if execution.startswith("compiled") else Plain(method)
    return Captured(inner) if execution.endswith("captured") else inner
