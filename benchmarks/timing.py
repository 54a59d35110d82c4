"""Timing of several things in turn, so that what else the machine does falls on all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

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
