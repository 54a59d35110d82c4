"""Ways to give each image the linear map of its own task, TwF's costliest layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.shapes import method_of
from benchmarks.timing import Effort, Row, interleaved
from twf.learning.methods.twf import Twf
from twf.learning.models.attention import TaskLinear
from twf.study import Run
from twf.study.params import Params


def gathered(layer: TaskLinear, x: Tensor, task: Tensor) -> Tensor:
    """A matrix copied for each image, as the published code does."""
    return torch.bmm(layer.weight[task], x[:, :, None]).squeeze(2)


def grouped(layer: TaskLinear, x: Tensor, task: Tensor) -> Tensor:
    """A product for each task's images. Their number is not known beforehand: no capture."""
    result = x.new_empty(len(x), layer.weight.shape[1])
    for number, weight in enumerate(layer.weight):
        mine = (task == number).nonzero()[:, 0]
        result[mine] = x[mine] @ weight.T
    return result


WAYS: dict[str, Callable[[TaskLinear, Tensor, Tensor], Tensor]] = {
    "a matrix per image": gathered,
    "grouped by task": grouped,
    "all tasks at once": TaskLinear.forward,  # what the methods call
}


def measure(params: Params, run: Run, device: torch.device, effort: Effort) -> list[Row]:
    """Forward and backward of the channel attention's first map at each layer, by each way."""
    method = method_of(params, run, device)
    assert isinstance(method, Twf)
    count = 2 * run.batch_size  # stream and replay
    task = torch.arange(count, device=device) % run.tasks
    rows = []
    for number, (channels, _, _) in enumerate(method.propagation.packer.shapes):
        layer = TaskLinear(run.tasks, channels, channels, 1.0).to(device)
        x = torch.randn(count, channels, device=device, requires_grad=True)

        def both(way: Callable[[TaskLinear, Tensor, Tensor], Tensor]) -> None:
            way(layer, x, task).sum().backward()  # noqa: B023 - called before the next layer
            layer.weight.grad = x.grad = None  # noqa: B023

        works = {name: lambda way=way: both(way) for name, way in WAYS.items()}
        for name, times in interleaved(works, device, effort).items():
            rows.append(
                {
                    "measurement": "task-conditioned map",
                    "benchmark": run.benchmark,
                    "layer": number,
                    "channels": channels,
                    "way": name,
                    **times.row(),
                }
            )
    return rows
