"""Costs timed on this machine: kept in a file, and timed where they are missing, within a limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Literal

from pydantic import ValidationError

from twf import files
from twf.errors import UserError
from twf.forecast.work import PRETRAINING, Cost, Work
from twf.gpus import cpu, visible
from twf.jobs import code
from twf.progress import progress
from twf.study.params import Execution, Params
from twf.study.types import Strict

PATIENCE = 40.0  # seconds for all timings of a forecast together

Kind = Literal["cpu", "cuda"]


class Cache(Strict):
    """The content of the file."""

    start_up: dict[str, float]  # seconds of a job before its run begins, by device
    costs: dict[str, Cost]


def take(
    params: Params, works: list[Work], kind: Kind, threads: int, execution: Execution
) -> tuple[dict[str, Cost], float | None, bool]:
    """Costs by `Work.kind`, the seconds of a job's start-up, and whether timing was stopped.

    What the file does not have is timed now, what matters most first, until `PATIENCE` is spent or
    Ctrl-C or SIGTERM comes, and added to it. One kind at least is timed, however slow the machine.
    """
    if kind == "cpu" and "captured" in execution:
        raise UserError("only steps on a GPU are captured: --execution plain or compiled")
    cache, device = _load(), device_name(kind, threads)
    keys = {work.kind: _key(work, device, execution) for work in works}
    missing = [work for work in in_order(works) if keys[work.kind] not in cache.costs]
    timed = list[str]()
    with _until_ended(timed) as ended:
        if device not in cache.start_up:
            cache.start_up[device] = _start_up(kind)
        if missing:
            import torch

            from twf.forecast import timing

            torch.set_num_threads(threads)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)  # imports may take as long
            with progress("timing steps", len(missing)) as advance:
                for work in missing:
                    with contextlib.suppress(torch.OutOfMemoryError):
                        cost = timing.cost(params, work, torch.device(kind), execution)
                        cache.costs[keys[work.kind]] = cost
                        timed.append(work.kind)
                    advance(1, work.run.id)
    with files.atomic(files.CALIBRATION) as file:
        file.write_text(cache.model_dump_json(indent=1))
    known = {name: cache.costs[key] for name, key in keys.items() if key in cache.costs}
    return known, cache.start_up.get(device), bool(ended)


@contextlib.contextmanager
def _until_ended(timed: list[str]) -> Iterator[set[int]]:
    """Leave the block, wherever it is, at Ctrl-C or SIGTERM; yields what came.

    At SIGALRM too, once something is timed.
    """
    ended = set[int]()
    running = True

    def end(number: int, _: object) -> None:
        if number == signal.SIGALRM and not timed:
            signal.setitimer(signal.ITIMER_REAL, 1.0)  # look again
            return
        ended.add(number)
        if running:
            raise KeyboardInterrupt

    # SIGINT too: some shells have it ignored
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield ended
    except KeyboardInterrupt:
        pass
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


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


def _key(work: Work, device: str, execution: Execution) -> str:
    """All that decides a cost; of the code, the loop and the one method."""
    method = work.run.method
    pretraining = method == PRETRAINING
    roots = [code.PRETRAINING] if pretraining else [code.LOOP, code.method_module(method)]
    values = [device, execution, version("torch"), code.code_hash(*roots), json.loads(work.kind)]
    return json.dumps(values)


def _load() -> Cache:
    """What has been timed; nothing where the file is missing or damaged."""
    try:
        return Cache.model_validate_json(files.CALIBRATION.read_bytes())
    except (FileNotFoundError, ValidationError):
        return Cache(start_up={}, costs={})


def _start_up(kind: Kind) -> float:
    """Seconds of the processor until a new job's run begins.

    On a CPU, Snakemake keeps all imported (`twf.cli.warm`), and a job starts with the command.
    """
    gpu = "import torch, twf.jobs.run; torch.zeros(1, device='cuda')"
    before = os.times()
    subprocess.run([sys.executable, "-c", "import twf.cli" if kind == "cpu" else gpu], check=True)
    after = os.times()
    user, system = after.children_user, after.children_system
    return user - before.children_user + system - before.children_system
