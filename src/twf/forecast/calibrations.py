"""Calibrations, each in a process of its own, and kept so that the next forecast is instant.

No torch here: where all is known already, none is imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from twf import files
from twf.forecast.cost import Timing
from twf.gpus import cpu, visible
from twf.jobs.code import LOOP, PRETRAINING, code_hash, method_module
from twf.progress import progress
from twf.study import Run, expand
from twf.study.methods import METHODS
from twf.study.params import Execution, Params
from twf.study.types import Strict

Kind = Literal["cpu", "cuda"]


class Known(Strict):
    """What was timed on one device by one version of all that computes."""

    versions: dict[str, str]
    start_up: float  # seconds of a job before its run begins
    tracking: float  # seconds that a run spends to begin and end its tracking
    timings: dict[str, Timing]  # by shape


_Cache = TypeAdapter(dict[str, Known])


def device_name(kind: Kind, threads: int) -> str:
    """The device as records have it (`twf.jobs.provenance.device_name`)."""
    return visible.gpus()[0].name if kind == "cuda" else cpu.cpu_name(threads)


def versions() -> dict[str, str]:
    """What decides a time beside device and shape: Python, PyTorch, and this package's code."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "code": code_hash(LOOP, PRETRAINING, *map(method_module, METHODS)),
    }


def known(device: str) -> Known | None:
    """What was timed on a device; None where nothing was, or by other versions."""
    found = _read().get(device)
    return found if found is not None and found.versions == versions() else None


def _read() -> dict[str, Known]:
    try:
        return _Cache.validate_json(files.CALIBRATION.read_bytes())
    except (FileNotFoundError, ValidationError):
        return {}  # what is damaged is timed again


def _write(device: str, found: Known) -> None:
    with files.atomic(files.CALIBRATION) as partial:
        partial.write_bytes(_Cache.dump_json(_read() | {device: found}, indent=1))


def timed(
    params: Params,
    wanted: dict[str, Run | str],
    kind: Kind,
    threads: int,
    jobs: int,
    execution: Execution = "plain",
) -> Known:
    """What is known of a device, with the timing of each shape in `wanted`: a run, or a source.

    What is missing is timed now, and kept at once; what does not fit into memory stays missing. On
    a CPU as many are timed side by side as `jobs` will run: cores that share caches and memory slow
    each other down.
    """
    device = device_name(kind, threads)
    found = known(device)
    if found is None:
        start_up, tracking = _start_up(params, kind)
        found = Known(versions=versions(), start_up=start_up, tracking=tracking, timings={})
        _write(device, found)
    missing = {shape: what for shape, what in wanted.items() if shape not in found.timings}
    with (
        progress("calibration", len(missing)) as advance,
        ThreadPoolExecutor(jobs if kind == "cpu" else 1) as pool,
    ):
        share = cpu.free_memory_mib() / jobs if kind == "cpu" else None
        shapes = {
            pool.submit(in_fresh_process, params, what, kind, threads, share, execution): shape
            for shape, what in missing.items()
        }
        try:
            for done in as_completed(shapes):
                what, timing = missing[shapes[done]], done.result()
                if timing is not None:
                    timings = found.timings | {shapes[done]: timing}
                    found = found.model_copy(update={"timings": timings})
                    _write(device, found)
                advance(1, what if isinstance(what, str) else what.id)
        finally:
            pool.shutdown(cancel_futures=True)
    return found


def _start_up(params: Params, kind: Kind) -> tuple[float, float]:
    """Seconds until a new job's run begins, and seconds for tracking.

    Without GPUs, Snakemake keeps all imported (`twf.cli.warm`), and a job starts with the command.
    """
    words = [sys.executable, "-c"]
    start = time.perf_counter()
    subprocess.run([*words, "import twf.cli"], check=True)
    command = time.perf_counter() - start
    call = f"begin({kind!r}, {params.model_dump_json()!r})"
    code = f"from twf.forecast.calibrations import begin; {call}"
    start = time.perf_counter()
    done = subprocess.run([*words, code], check=True, stdout=subprocess.PIPE, text=True)
    whole, tracking = time.perf_counter() - start, float(done.stdout)
    return command if kind == "cpu" else whole - tracking, tracking


def begin(kind: Kind, params: str) -> None:
    """Begin as a run does; track nothing, and print the seconds that takes. Nothing goes online."""
    import torch

    from twf.jobs.run import columns_after, columns_before
    from twf.learning.loop import Outcome
    from twf.tracking.live import SWITCH, start_tracking

    torch.zeros(1, device=kind)
    loaded = Params.model_validate_json(params)
    run = next(iter(expand(loaded, loaded.study).runs.values()))
    if os.environ.get(SWITCH, loaded.tracking.mode) != "off":
        os.environ[SWITCH] = "offline"
        if kind == "cpu" and importlib.util.find_spec("wandb"):
            importlib.import_module("wandb")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        device = torch.device("cpu")
        row = columns_before(run, {}, datetime.now(UTC), device)
        start = time.perf_counter()
        with start_tracking(loaded.tracking, row) as tracker:
            tracker.finish(row | columns_after(Outcome(reason="nothing was trained"), 0.0, device))
        print(time.perf_counter() - start)


def in_fresh_process(
    params: Params,
    what: Run | str,
    kind: Kind,
    threads: int,
    share_mib: float | None = None,
    execution: Execution = "plain",
) -> Timing | None:
    """Time a run's pieces, or a source's, where nothing was held before; None if memory is short.

    The process is a fork of a server that has imported what a run needs. It may take `share_mib` of
    main memory, so that the system need not end others' processes for it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["twf.forecast.calibration", "wandb"])  # as `twf.cli.warm`
    words = params.model_dump_json(), what if isinstance(what, str) else what.model_dump_json()
    try:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(_calibrate, *words, kind, threads, share_mib, execution).result()
    except BrokenProcessPool:  # ended by the system, which does so where memory is short
        return None


def _calibrate(
    params: str,
    what: str,
    kind: Kind,
    threads: int,
    share_mib: float | None,
    execution: Execution,
) -> Timing | None:
    """In the fresh process; a run comes as JSON."""
    import torch

    from twf.forecast import calibration

    torch.set_num_threads(threads)
    if share_mib is not None:
        limit = int(share_mib * 2**20)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    loaded, device = Params.model_validate_json(params), torch.device(kind)
    try:
        if what.startswith("{"):
            return calibration.calibrate(loaded, Run.model_validate_json(what), device, execution)
        return calibration.calibrate_pretraining(loaded, what, device, execution)
    except (torch.OutOfMemoryError, MemoryError):
        return None
    except RuntimeError as error:
        if "allocate memory" in str(error):  # what PyTorch says on a CPU
            return None
        raise
