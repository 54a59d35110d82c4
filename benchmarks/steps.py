"""A training step of each method, beside the published code's; and many on one device at once.

What is compared is called in turn, so that what else the machine does falls on all of it.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, cast

import torch

from benchmarks import reference
from benchmarks.shapes import method_of, random_task, step_of
from twf.learning.precision import set_precision
from twf.learning.step import executed
from twf.study import Run, reading
from twf.study.params import Execution, Params

FIRST_STEPS = 6  # in the first task, to fill the buffer; what is timed is in the second
SECONDS = 10.0  # of steps that are counted
WARM_UP = 3  # steps before
BEGUN = 20  # steps that a GPU is given before it is waited for
Row = dict[str, Any]


def second_task_step(
    params: Params, run: Run, execution: str, device: torch.device
) -> Callable[[], object]:
    """A step of the run's second task, as training does it; where all is one task, of that."""
    set_precision(run.precision, device)
    method = method_of(params, run, device)
    steps = executed(cast(Execution, execution), method)
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


def interleaved(
    works: Mapping[str, Callable[[], object]], device: torch.device, calls: int, repeats: int
) -> dict[str, float]:
    """Call all of `works` in turn, each `calls` times, and that again in every repeat.

    Gives the median of a call in milliseconds.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():  # warm-up: allocations, and choices of algorithms
        for _ in range(2):
            work()
    for _ in range(repeats):
        for name, work in works.items():
            synchronise(device)
            start = time.perf_counter()
            for _ in range(calls):
                work()
            synchronise(device)
            times[name].append((time.perf_counter() - start) / calls * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_mib(params: Params, run: Run, execution: str, device: torch.device) -> float:
    """The most memory that PyTorch's tensors take on a GPU."""
    before = torch.cuda.memory_allocated(device)  # of what is measured beside it
    step = second_task_step(params, run, execution, device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def measure(
    params: Params,
    run: Run,
    executions: list[str],
    precision: str,
    checkout: Path | None,
    device: torch.device,
    calls: int = 5,
    repeats: int = 5,
) -> Iterator[Row]:
    """A row for each execution of a run's step, and one for the published code's where asked.

    A reference's row comes first, and ours say by how many times they are faster.
    """
    precision = set_precision(precision, device)
    run = run.model_copy(update={"precision": precision})
    works = {name: second_task_step(params, run, name, device) for name in executions}
    if checkout is not None:
        works = {reference.NAME: reference.second_task_step(checkout, run, device)} | works
    times = interleaved(works, device, calls, repeats)
    for name, milliseconds in times.items():
        row: Row = {
            "measurement": "training step",
            "benchmark": run.benchmark,
            "method": run.method,
            "execution": name,
            "precision": precision,
            "images": run.stream_batch,
            "milliseconds": milliseconds,
            "images_per_second": run.stream_batch / milliseconds * 1e3,
        }
        if name == reference.NAME:
            row["precision"] = "fp32" if precision == "fp32" else "tf32"  # it has no bf16
        else:
            if device.type == "cuda":
                row["peak_memory_mib"] = peak_memory_mib(params, run, name, device)
            if checkout is not None:
                row["times_reference"] = times[reference.NAME] / milliseconds
        yield row


def measure_sharing(
    params: Params,
    run: Run,
    execution: str,
    precision: str,
    jobs: list[int],
    device: torch.device,
    seconds: float = SECONDS,
) -> list[Row]:
    """Images per second of so many processes together, each with a run's steps of its own.

    All begin to count when the last is ready. A GPU is waited for after every `BEGUN` steps:
    training, too, gives it steps before it has done the last. `times_alone` is against the first
    number of `jobs`, per job of it.
    """
    run = run.model_copy(update={"precision": precision})
    rows: list[Row] = []
    for count in jobs:
        rate = _together(params, run, execution, count, device, seconds)
        alone = rows[0]["images_per_second"] / rows[0]["jobs"] if rows else rate / count
        row = {"measurement": "jobs on one device", "benchmark": run.benchmark}
        row |= {"method": run.method, "execution": execution, "precision": precision}
        speed = {"images_per_second": rate, "times_alone": rate / alone}
        rows.append(row | {"jobs": count, "mps": served()} | speed)
    return rows


def served() -> bool:
    """Whether NVIDIA's MPS server lets these processes work on a GPU at the same time."""
    folder = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")  # its own default
    return (Path(folder) / "control").exists()


def _together(
    params: Params, run: Run, execution: str, count: int, device: torch.device, seconds: float
) -> float:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(count, mp_context=context) as pool:
        words = params.model_dump(mode="json"), run, execution, device, torch.get_num_threads()
        ready = manager.Barrier(count)
        jobs = [pool.submit(_job, *words, ready, seconds) for _ in range(count)]
        return sum(job.result() for job in jobs)


def _job(
    values: Any, run: Run, way: str, device: torch.device, threads: int, ready: Any, seconds: float
) -> float:
    torch.set_num_threads(threads)
    try:
        step = second_task_step(reading.check(values), run, way, device)
        for _ in range(WARM_UP):
            step()
        synchronise(device)
    except BaseException:
        ready.abort()  # or the others would wait for ever
        raise
    ready.wait()
    steps, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        for _ in range(BEGUN if device.type == "cuda" else 1):
            step()
            steps += 1
        synchronise(device)
    return steps * run.stream_batch / (time.monotonic() - start)
