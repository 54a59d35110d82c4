"""How long what remains of a study takes, and what it needs, on the machine at hand."""

from __future__ import annotations

import json
import math
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from twf import files
from twf.data.counts import count
from twf.data.registry import Splits
from twf.errors import UserError
from twf.forecast import calibrations, cost, disk
from twf.forecast.calibrations import Kind
from twf.forecast.cost import Timing
from twf.gpus import cpu, visible
from twf.results import record
from twf.study import Plan, Run
from twf.study.params import Execution, Params

MIB = 2**20


class Costs(NamedTuple):
    """What a run takes, start-up excluded, and how that is known."""

    seconds: float
    memory_mib: float
    basis: str  # measured: of records of such runs; calibrated: of its pieces


def forecast(
    params: Params,
    plan: Plan,
    status: dict[str, Any],
    kind: Kind,
    threads: int,
    execution: Execution = "plain",
) -> dict[str, Any]:
    """What remains of a study, as `status.of_plan` has it, in times and sizes; plain values.

    Preparing data, tables and the report are not counted, nor is compiling.
    """
    todo = [run for run in plan.runs.values() if status["runs"][run.id]["status"] != "done"]
    sources = [name for name, state in status["sources"].items() if state != "done"]
    trained = [name for name in sources if params.sources[name].data is not None]
    images = {name: count(name, params.datasets[name]) for name in status["data"]}
    known = measured(params, calibrations.device_name(kind, threads), execution)
    shapes = {run.id: _text(cost.shape(params, run), execution) for run in todo}
    wanted: dict[str, Run | str] = {
        shapes[run.id]: run for run in todo if cost.alike(params, run) not in known
    }
    pretraining = {name: _text(_pretraining_shape(params, name), execution) for name in trained}
    wanted |= {shape: name for name, shape in pretraining.items()}
    jobs = jobs_at_once(params, kind, threads)
    timed = calibrations.timed(params, wanted, kind, threads, jobs, execution)
    timings = {shape: timed.timings[shape] for shape in wanted if shape in timed.timings}

    costs: dict[str, Costs] = {}
    for run in todo:
        if (of_records := known.get(cost.alike(params, run))) is not None:
            costs[run.id] = of_records
        elif (timing := timings.get(shapes[run.id])) is not None:
            costs[run.id] = _calibrated(params, run, timing, images, kind, timed.tracking)
    first = {
        name: timed.start_up + cost.seconds(_pretraining_work(params, name, images), timings[shape])
        for name, shape in pretraining.items()
        if shape in timings
    }
    then = {name: timed.start_up + costs[name].seconds for name in costs}
    too_large = {f"{run.benchmark}.{run.method}": None for run in todo if run.id not in costs}
    too_large |= {f"pretraining on {name}": None for name in trained if name not in first}
    devices = [t.device_mib for t in timings.values() if t.device_mib is not None]
    needed = disk.needed(params, plan, jobs, timings.values())
    return {
        "device": calibrations.device_name(kind, threads),
        "kind": kind,
        "threads": threads,
        "jobs": jobs,
        "start_up_seconds": timed.start_up,
        "pretraining": first,
        "runs": _by_method([run for run in todo if run.id in costs], then, costs),
        "too_large": list(too_large),
        "hours": (sum(first.values()) + sum(then.values())) / 3600,
        "wall_hours": (cost.makespan(first.values(), jobs) + cost.makespan(then.values(), jobs))
        / 3600,
        "memory": {
            "run_mib": max((c.memory_mib for c in costs.values()), default=None),
            "free_mib": cpu.free_memory_mib() if kind == "cpu" else min(devices, default=None),
            "jobs": jobs if kind == "cpu" else params.gpu_slots,
        },
        "resources": {
            rule: resources(seconds, memory if kind == "cpu" else [])
            for rule, seconds, memory in (
                ("pretrain", list(first.values()), []),
                ("run", list(then.values()), [c.memory_mib for c in costs.values()]),
            )
            if seconds
        },
        "disk": {
            **{f"{name}_mib": mib for name, mib in needed.items()},
            "free_mib": shutil.disk_usage(Path()).free / MIB,
        },
    }


def resources(seconds: list[float], memory_mib: list[float]) -> dict[str, int]:
    """What to ask a cluster for: `runtime` (minutes) and, where memory is known, `mem_mb`.

    Enough for the longest and the largest job, and half as much again; 10 minutes at least.
    """
    asked = {"runtime": 10 * math.ceil(1.5 * max(seconds) / 600)}
    if memory_mib:
        asked["mem_mb"] = 1000 * math.ceil(1.5 * max(memory_mib) * 1.048576 / 1000)
    return asked


def _text(shape: dict[str, Any], execution: Execution) -> str:
    return json.dumps(shape | {"execution": execution}, sort_keys=True)


def _pretraining_shape(params: Params, name: str) -> dict[str, Any]:
    source = params.sources[name]
    assert source.data is not None and source.pretraining is not None
    data = params.datasets[source.data]
    return cost.pretraining_shape(source.network, data.classes, data.size, source.pretraining)


def _pretraining_work(params: Params, name: str, images: dict[str, Splits]) -> cost.Work:
    return cost.pretraining_work(params, name, images[str(params.sources[name].data)])


def jobs_at_once(params: Params, kind: Kind, threads: int) -> int:
    """The jobs that `snakemake --cores all` runs side by side."""
    cores = max(1, cpu.cores() // threads)
    return cores if kind == "cpu" else min(cores, len(visible.gpus()) * params.gpu_slots)


def measured(params: Params, device: str, execution: Execution = "plain") -> dict[str, Costs]:
    """By `cost.alike`: the medians over the finished runs that any study has on a device.

    Those alone whose steps were executed so.
    """
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    columns = ["status", "seconds", "peak_memory_mib", "device", "provenance"]
    for path in Path().glob(files.RECORD.format(study="*", run="*")):
        try:
            row = record.read(path, columns).to_pylist()[0]
            provenance = record.provenance(row)
            values = provenance["parameters"] | {"id": path.stem, "study": ""}
            alike = cost.alike(params, Run.model_validate(values))
        except (UserError, ValidationError, KeyError):
            continue  # it is torn, or of another version of params.yaml
        as_now = (row["device"], provenance["execution"]) == (device, execution)
        if row["status"] == "finished" and as_now:
            found[alike].append(row)
    return {
        alike: Costs(
            median(row["seconds"] for row in rows),
            max(row["peak_memory_mib"] for row in rows),
            "measured",
        )
        for alike, rows in found.items()
    }


def _calibrated(
    params: Params,
    run: Run,
    timing: Timing,
    images: dict[str, Splits],
    kind: Kind,
    tracking: float,
) -> Costs:
    """A run's costs from the timing of its pieces."""
    source = None if run.source_data is None else images[run.source_data]
    work = cost.work(run, images[run.data], source)
    size = params.datasets[run.data].size
    held = cost.data_on_device(run, images[run.data], size, kind == "cpu")
    if source is not None:
        held += cost.pixels(source, params.datasets[str(run.source_data)].size)
    seconds = cost.seconds(work, timing) + tracking
    return Costs(seconds, timing.memory_mib + held / MIB, "calibrated")


def _by_method(
    runs: list[Run], seconds: dict[str, float], costs: dict[str, Costs]
) -> list[dict[str, Any]]:
    """A row for each method on each benchmark."""
    rows: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        rows[run.benchmark, run.method].append(run)
    return [
        {
            "benchmark": benchmark,
            "method": method,
            "runs": len(alike),
            "measured": sum(costs[run.id].basis == "measured" for run in alike),
            "seconds": mean(seconds[run.id] for run in alike),
            "hours": sum(seconds[run.id] for run in alike) / 3600,
            "memory_mib": max(costs[run.id].memory_mib for run in alike),
        }
        for (benchmark, method), alike in rows.items()
    ]


def warnings(found: dict[str, Any]) -> list[str]:
    """What the machine is short of."""
    said = []
    if found["too_large"]:
        said.append(
            f"of memory for {', '.join(found['too_large'])}, with {found['jobs']} jobs at once: "
            "not counted"
        )
    space, memory = found["disk"], found["memory"]
    needed = sum(size or 0 for name, size in space.items() if name != "free_mib")
    if needed > space["free_mib"]:
        said.append(
            f"on the disk, {disk.size(needed)} are needed, {disk.size(space['free_mib'])} free"
        )
    if memory["run_mib"] is not None and memory["free_mib"] is not None:
        together = memory["run_mib"] * memory["jobs"]
        if together > memory["free_mib"]:
            said.append(
                f"of memory, as {memory['jobs']} of the largest runs at once hold "
                f"{disk.size(together)}, {disk.size(memory['free_mib'])} are free: fewer at once "
                "with snakemake --cores N"
            )
    return said


def show(found: dict[str, Any]) -> None:
    """Print a forecast."""
    console = Console()
    kind = "GPU" if found["kind"] == "cuda" else "CPU"
    table = Table(title=f"forecast for {found['device']}")
    table.add_column("what", no_wrap=True)
    for column in ("runs", "each", f"{kind} hours"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("times", no_wrap=True)
    for source, seconds in found["pretraining"].items():
        hours = f"{seconds / 3600:.2f}"
        table.add_row(f"pretraining on {source}", "1", _time(seconds), hours, "calibrated")
    for row in found["runs"]:
        basis = {row["runs"]: "measured", 0: "calibrated"}
        table.add_row(
            f"{row['benchmark']}.{row['method']}",
            str(row["runs"]),
            _time(row["seconds"]),
            f"{row['hours']:.2f}",
            basis.get(row["measured"], f"{row['measured']} measured"),
        )
    console.print(table)
    console.print(
        f"{found['hours']:.2f} {kind} hours, {_time(found['wall_hours'] * 3600)} with "
        f"{found['jobs']} jobs at once; preparing data, tables and report not counted"
    )
    space = found["disk"]
    parts = [
        f"{name.removesuffix('_mib')} {disk.size(size)}"
        for name, size in space.items()
        if name != "free_mib" and size is not None
    ]
    console.print(f"disk: {', '.join(parts)}; free {disk.size(space['free_mib'])}")
    memory = found["memory"]
    if memory["run_mib"] is not None:
        where = "of the GPU" if kind == "GPU" else "free"
        free = "" if memory["free_mib"] is None else f"; {disk.size(memory['free_mib'])} {where}"
        console.print(f"memory: up to {disk.size(memory['run_mib'])} a run{free}")
    for rule, asked in found["resources"].items():
        words = ", ".join(f"{name}: {amount} * attempt" for name, amount in asked.items())
        console.print(f"for a cluster's profile, {rule}: {words}")
    for text in warnings(found):
        console.print(f"[red]short:[/] {text}")


def _time(seconds: float) -> str:
    """Seconds, or minutes and so on where they are many."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
