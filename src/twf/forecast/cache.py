"""Costs timed on this machine: kept in a file, and timed where they are missing, within a limit."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from twf import files
from twf.errors import UserError
from twf.forecast.work import Cost, Work
from twf.gpus import cpu, visible
from twf.jobs import code
from twf.progress import progress
from twf.study.params import Execution, Params

PATIENCE = 40.0  # seconds after which timing ends, but for the first kind

Kind = Literal["cpu", "cuda"]
COSTS = TypeAdapter(dict[str, Cost])


def take(
    params: Params, works: list[Work], kind: Kind, threads: int, execution: Execution
) -> tuple[dict[str, Cost], bool]:
    """Costs by `Work.kind`, and whether timing was stopped.

    What the file does not have is timed now, what matters most first, until `PATIENCE` is spent or
    Ctrl-C or SIGTERM comes, and added to it. One kind at least is timed, however long it takes.
    """
    if kind == "cpu" and "captured" in execution:
        raise UserError("only steps on a GPU are captured: --execution plain or compiled")
    device = device_name(kind, threads)
    values = [device, execution, version("torch")]
    keys = {w.kind: json.dumps([*values, _code(w), json.loads(w.kind)]) for w in works}
    try:
        costs = COSTS.validate_json(files.CALIBRATION.read_bytes())
    except (FileNotFoundError, ValidationError):
        costs = {}
    missing = [work for work in in_order(works) if keys[work.kind] not in costs]
    if missing:
        # SIGINT too: some shells have it ignored
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
        before = [signal.signal(number, signal.default_int_handler) for number in numbers]
        with contextlib.suppress(KeyboardInterrupt):
            import torch

            from twf.forecast import timing

            torch.set_num_threads(threads)
            end = time.monotonic() + PATIENCE
            with progress("timing steps", len(missing)) as advance:
                while missing:
                    work = missing[0]
                    with contextlib.suppress(torch.OutOfMemoryError):
                        cost = timing.cost(params, work, torch.device(kind), execution)
                        costs[keys[work.kind]] = cost
                    advance(1, work.run.id)
                    missing.pop(0)
                    if (left := end - time.monotonic()) <= 0:
                        break
                    signal.setitimer(signal.ITIMER_REAL, left)  # also where the next takes longer
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        with files.atomic(files.CALIBRATION) as file:
            file.write_bytes(COSTS.dump_json(costs, indent=1))
    return {name: costs[key] for name, key in keys.items() if key in costs}, bool(missing)


def in_order(works: Iterable[Work]) -> list[Work]:
    """One of each kind: first one on each network, then one of each method on each, then others.

    Small networks come before large ones, which can be estimated by them.
    """
    todo, one = defaultdict[str, float](float), {work.kind: work for work in works}
    for work in works:
        todo[work.kind] += work.size
    ranked: list[tuple[int, float, int, Work]] = []
    known: set[object] = set()
    for work in sorted(one.values(), key=lambda work: -todo[work.kind]):
        places = {work.network, (work.network, work.run.method)}
        ranked.append((len(places & known), work.per_image, len(ranked), work))
        known |= places
    return [work for *_, work in sorted(ranked)]


def device_name(kind: Kind, threads: int) -> str:
    """The device as records have it (`twf.jobs.provenance.device_name`)."""
    return visible.gpus()[0].name if kind == "cuda" else cpu.cpu_name(threads)


def _code(work: Work) -> str:
    """The hash of what is timed: the loop, and the one method."""
    return code.code_hash(code.LOOP, code.method_module(work.run.method))
