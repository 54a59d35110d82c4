"""Several jobs on one device at once: what they do together, beside one alone."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.steps import Row, second_task_step, synchronise
from twf.study import Run, reading
from twf.study.params import Params

SECONDS = 10.0  # of steps that are counted
WARM_UP = 3  # steps before
BEGUN = 20  # steps that a GPU is given before it is waited for


def measure(
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
    step = second_task_step(reading.check(values), run, way, device)
    for _ in range(WARM_UP):
        step()
    synchronise(device)
    ready.wait()
    steps, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        for _ in range(BEGUN if device.type == "cuda" else 1):
            step()
            steps += 1
        synchronise(device)
    return steps * run.stream_batch / (time.monotonic() - start)
