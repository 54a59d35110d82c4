"""Timing of several things in turn, so that what else the machine does falls on all of them."""

from __future__ import annotations

import multiprocessing
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from twf.gpus import cpu

P = ParamSpec("P")
R = TypeVar("R")
Row = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much is measured: timed calls in a repeat, and repeats."""

    calls: int = 5
    repeats: int = 5


@dataclass(frozen=True)
class Times:
    """Seconds of one call in each repeat: by the clock, and of all this process's threads."""

    clock: list[float]
    processor: list[float]

    def row(self) -> Row:
        """Median and range in milliseconds. Processor time leaves out what else the machine did."""
        return {
            "milliseconds": statistics.median(self.clock) * 1e3,
            "fastest": min(self.clock) * 1e3,
            "slowest": max(self.clock) * 1e3,
            "processor_milliseconds": statistics.median(self.processor) * 1e3,
        }


def interleaved(
    works: Mapping[str, Callable[[], object]], device: torch.device, effort: Effort
) -> dict[str, Times]:
    """Call all of `works` in turn, each a few times, and that again in every repeat."""
    times = {name: Times([], []) for name in works}
    for work in works.values():  # warm-up: allocations, and choices of algorithms
        for _ in range(2):
            work()
    for _ in range(effort.repeats):
        for name, work in works.items():
            synchronise(device)
            clock, processor = time.perf_counter(), time.process_time()
            for _ in range(effort.calls):
                work()
            synchronise(device)
            times[name].clock.append((time.perf_counter() - clock) / effort.calls)
            times[name].processor.append((time.process_time() - processor) / effort.calls)
    return times


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def in_fresh_process(work: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """What `work` gives in a new Python process, which has imported nothing before."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *arguments, **options).result()


def resident_mib(peak: bool = False) -> float:
    """This process's memory now, or the most it has had since it started."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except FileNotFoundError:  # it is Linux's alone
        if peak:
            return cpu.peak_memory_mib()
        words = ["ps", "-o", "rss=", "-p", str(os.getpid())]
        kib = subprocess.run(words, capture_output=True, check=True).stdout
    else:  # its peak does not begin with that of the process before an exec
        (kib,) = re.findall(rf"^{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB$", status, flags=re.M)
    return int(kib) / 2**10
