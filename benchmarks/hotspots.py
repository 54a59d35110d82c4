"""Where the time of a training step goes: its operations on a CPU, its kernels on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.steps import second_task_step
from benchmarks.timing import Effort, Row, interleaved, synchronise
from twf.study import Run
from twf.study.params import Params

SHOWN = 15  # the longest
NAME = 70  # characters of a kernel's, which may have hundreds


def measure(
    params: Params,
    run: Run,
    executions: list[str],
    precision: str,
    device: torch.device,
    effort: Effort,
) -> Iterator[Row]:
    """For each execution of a run's step: all operations together, then those that take longest.

    `calls` and `milliseconds` are per step. `share` is that of all operations in the step's time by
    the clock, without the profiler: what is missing to 1 the device waits. An operation's is that
    of all operations.
    """
    run = run.model_copy(update={"precision": precision})
    for execution in executions:
        step = second_task_step(params, run, execution, device)
        clock = interleaved({"": step}, device, effort)[""].row()["milliseconds"]
        found = _operations(step, device, effort.calls)
        total = sum(milliseconds for _, _, milliseconds in found)
        rows = [("all", sum(calls for _, calls, _ in found), total, total / clock)]
        rows += [(name, calls, spent, spent / total) for name, calls, spent in found[:SHOWN]]
        for name, calls, spent, share in rows:
            yield {
                "measurement": "hot spots of a training step",
                "benchmark": run.benchmark,
                "method": run.method,
                "execution": execution,
                "precision": precision,
                "operation": name,
                "calls": calls,
                "milliseconds": spent,
                "share": share,
            }


def _operations(
    step: Callable[[], object], device: torch.device, steps: int
) -> list[tuple[str, float, float]]:
    """Name, calls and milliseconds per step of what the device does, the longest first."""
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        for _ in range(steps):
            step()
        synchronise(device)
    found = [
        (
            event.key[:NAME],
            event.count / steps,
            (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / steps / 1e3,
        )
        for event in profiler.key_averages()
        # a compiled step's kernels stand below an annotation too, as long as all of them
        if event.device_type.name == device.type.upper() and not event.is_user_annotation
    ]
    return sorted(found, key=lambda row: -row[2])
