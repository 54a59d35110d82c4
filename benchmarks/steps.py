"""A training step of each method, beside the published code's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks import reference
from benchmarks.shapes import method_of, random_task, step_of
from benchmarks.timing import Effort, Row, interleaved
from twf.gpus import cpu
from twf.learning.precision import set_precision
from twf.learning.step import executed
from twf.study import Run, reading
from twf.study.params import Params

RATIOS = {  # by how many times ours is faster
    "milliseconds": "times_reference",
    "processor_milliseconds": "times_reference_processor",
}
FIRST_STEPS = 6  # in the first task, to fill the buffer; what is timed is in the second


def second_task_step(
    params: Params, run: Run, execution: str, device: torch.device
) -> Callable[[], object]:
    """A step of the run's second task, as training does it; where all is one task, of that."""
    set_precision(run.precision, device)
    method = method_of(params, run, device)
    steps = executed(execution, method)
    phases = method.phases([random_task(params, run, n, device) for n in range(2)])
    for task in phases:
        for module in method.modules():
            module.train()
        method.begin_task(task)
        images, labels = method.training_set(task)
        steps.begin(images, labels)
        step = step_of(steps, images)
        if task is not phases[-1]:
            for _ in range(FIRST_STEPS):
                step()
            method.end_task(task)
    return step


def peak_memory_mib(params: Params, run: Run, execution: str, device: torch.device) -> float:
    """The most memory held: PyTorch's tensors on a GPU, a fresh process's all on a CPU."""
    if device.type == "cpu":
        values = params.model_dump(mode="json")  # its classes are made as needed: no pickle of them
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            words = values, run, execution, torch.get_num_threads()
            return pool.submit(_peak_on_cpu, *words).result()
    before = torch.cuda.memory_allocated(device)  # of what is measured beside it
    step = second_task_step(params, run, execution, device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def _peak_on_cpu(values: dict[str, Any], run: Run, execution: str, threads: int) -> float:
    torch.set_num_threads(threads)
    second_task_step(reading.check(values), run, execution, torch.device("cpu"))()
    status = Path("/proc/self/status")
    if not status.exists():
        return cpu.peak_memory_mib()
    # which begins with the peak of the process before an exec
    peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8"))
    assert peak is not None
    return int(peak[1]) / 2**10


def measure(
    params: Params,
    run: Run,
    executions: list[str],
    precision: str,
    checkout: Path | None,
    device: torch.device,
    effort: Effort,
) -> Iterator[Row]:
    """A row for each execution of a run's step, and one for the published code's where asked.

    A reference's row comes first, and ours say by how many times they are faster.
    """
    precision = set_precision(precision, device)
    run = run.model_copy(update={"precision": precision})
    if any(name.startswith("compiled") for name in executions):
        torch._dynamo.reset()  # so that what was compiled for other rows does not count
    works = {name: second_task_step(params, run, name, device) for name in executions}
    if checkout is not None:
        works = {reference.NAME: reference.second_task_step(checkout, run, device)} | works
    times = {name: t.row() for name, t in interleaved(works, device, effort).items()}
    for name, row in times.items():
        row = {
            "measurement": "training step",
            "benchmark": run.benchmark,
            "method": run.method,
            "execution": name,
            "precision": precision,
            "images": run.stream_batch,
            **row,
            "images_per_second": run.stream_batch / row["milliseconds"] * 1e3,
        }
        if name == reference.NAME:
            row["precision"] = "fp32" if precision == "fp32" else "tf32"  # it has no bf16
        else:
            row["peak_memory_mib"] = peak_memory_mib(params, run, name, device)
            if checkout is not None:
                for clock, ratio in RATIOS.items():
                    row[ratio] = times[reference.NAME][clock] / row[clock]
        yield row
