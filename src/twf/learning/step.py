"""One training step - loss, gradients, update, buffer - and the ways to execute it.

Both execute the same method file. `plain` is the definition; `captured` is held to it by tests.
Nothing of a step returns to the host.
"""

from typing import Any

import torch
from torch import Tensor, nn

from twf.errors import UserError
from twf.learning.methods.base import Batch, Method
from twf.learning.precision import autocast
from twf.learning.state import capture, flatten, restore
from twf.study.params import Execution

Terms = dict[str, Tensor]  # each term's value, a scalar
WARM_UP = 3  # steps before a capture, which let libraries choose algorithms and take their memory


class CaptureError(Exception):
    """A step that runs cannot be captured; its message is CUDA's reason."""


def training_step(
    method: Method[Any],
    parameters: list[nn.Parameter],
    batch: Batch,
    rate: float | Tensor,
) -> Terms:
    """Learn from one stream batch, then offer it to the buffer. Gives each term's value."""
    learner = method.learner
    with autocast(learner.precision, learner.device):
        step = method.loss(batch)
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

    def begin(self, images: Tensor, labels: Tensor) -> None:
        """Begin a phase on its training set, whose tensors stay in place until the next."""
        self.images, self.labels = images, labels

    def step(self, index: Tensor, rate: float) -> Terms:
        """A step on the images at `index` (int64 `[B]`) at a learning rate.

        The terms stand until the next step.
        """
        return self._step(index, rate)

    def _step(self, index: Tensor, rate: float | Tensor) -> Terms:
        batch = Batch(self.images[index], self.labels[index], index)
        return training_step(self.method, self.parameters, batch, rate)


class Captured(Plain):
    """The whole step, update and buffer too, as one CUDA graph for each phase.

    A run's first step, which makes the buffer's rows, and batches of another size (the last of an
    epoch, where a method keeps it) are plain.
    """

    def __init__(self, method: Method[Any]) -> None:
        super().__init__(method)
        if method.learner.device.type != "cuda":
            raise UserError("only steps on a GPU are captured: --execution plain")
        # one for all captures: libraries take memory for each stream that they meet, and keep it
        self.aside = torch.cuda.Stream(method.learner.device)

    def begin(self, images: Tensor, labels: Tensor) -> None:
        super().begin(images, labels)
        self.graph: torch.cuda.CUDAGraph | None = None

    def step(self, index: Tensor, rate: float) -> Terms:
        if not self._has_stepped() or len(index) != self.method.learner.batch_size:
            return super().step(index, rate)
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
                self._step(self.index, self.rate)
        torch.cuda.current_stream(device).wait_stream(self.aside)
        restore(self.method, before, tensors)
        self.graph = torch.cuda.CUDAGraph()
        for random in self.method.learner.generators.values():
            self.graph.register_generator_state(random.generator)
        try:
            with torch.cuda.graph(self.graph, stream=self.aside):
                self.terms = self._step(self.index, self.rate)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise CaptureError(str(error).strip().splitlines()[0]) from error

    def _has_stepped(self) -> bool:
        """Whether a step was made: its random numbers have begun, and its buffer has rows."""
        buffer = self.method.buffer
        filled = buffer is None or buffer.size == 0 or not buffer.empty
        return filled and "augmentation" in self.method.learner.generators


def executed(execution: Execution, method: Method[Any]) -> Plain:
    """The steps of a run, executed in one of the ways."""
    return Captured(method) if execution == "captured" else Plain(method)
