"""How long what remains of a study takes, and what it needs, on the machine at hand."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

from twf.data.counts import count
from twf.forecast import cache, disk
from twf.forecast.cache import Kind
from twf.forecast.work import MIB, PRETRAINING, Cost, estimated, of_run, pretraining
from twf.gpus import cpu, nvidia, visible
from twf.study import Plan
from twf.study.params import Execution, Params


def forecast(
    params: Params,
    plan: Plan,
    status: dict[str, Any],
    kind: Kind,
    threads: int,
    execution: Execution = "plain",
) -> dict[str, Any]:
    """What remains of a study, as `status.of_plan` has it, in times and sizes; plain values.

    Preparing data, compiling, tracking, tables and the report are not counted.
    """
    device, jobs = cache.device_name(kind, threads), jobs_at_once(params, kind, threads)
    images = {name: count(name, params.datasets[name]) for name in status["data"]}
    planned, sources = list(plan.runs.values()), status["sources"]
    runs = [
        pretraining(params, name, planned[0])
        for name, state in sources.items()
        if state != "done" and params.sources[name].trained_on
    ]
    runs += [run for run in planned if status["runs"][run.id]["status"] != "done"]
    works = [of_run(params, run, images) for run in runs]
    timed, stopped = cache.take(params, works, kind, threads, execution)
    known = [(work, timed[work.kind]) for work in works if work.kind in timed]
    start_up = _start_up(kind)
    rows: defaultdict[str, list[Cost]] = defaultdict(list)
    rules: dict[str, list[Cost]] = {"pretrain": [], "run": []}
    unknown = set[str]()
    for work in works:
        run, pretrained = work.run, work.run.benchmark == PRETRAINING
        name = f"{run.benchmark}.{run.id if pretrained else run.method}"
        cost = timed.get(work.kind) or estimated(work, known)
        if cost is None:
            unknown.add(name)
            continue
        cost = cost.model_copy(update={"seconds": cost.seconds + start_up})
        rows[name].append(cost)
        rules["pretrain" if pretrained else "run"].append(cost)
    seconds = {rule: [cost.seconds for cost in costs] for rule, costs in rules.items() if costs}
    largest = max((cost.memory_mib for costs in rules.values() for cost in costs), default=0.0)
    return {
        "device": device,
        "kind": kind,
        "jobs": jobs,
        "start_up_seconds": start_up,
        "runs": [_row(name, costs) for name, costs in rows.items()],
        "hours": sum(map(sum, seconds.values())) / 3600,
        # where no job waits for another, and none takes longest
        "wall_hours": sum(max(max(s), sum(s) / jobs) for s in seconds.values()) / 3600,
        "memory": {"run_mib": largest, "free_mib": free_memory_mib(kind)},
        "resources": {
            rule: resources(seconds[rule], largest if kind == "cpu" else None) for rule in seconds
        },
        "disk": {f"{name}_mib": mib for name, mib in disk.needed(params, plan, jobs).items()}
        | {"free_mib": shutil.disk_usage(Path()).free / MIB},
        "jobs_left": len(works),
        "unknown": sorted(unknown),
        "stopped": stopped,
    }


def _start_up(kind: Kind) -> float:
    """Seconds of the processor until a new job's run begins.

    On a CPU, Snakemake keeps all imported (`twf.cli.warm`), and a job starts with the command;
    but not where a fork of that may fail.
    """
    warm = kind == "cpu" and cpu.may_fork()
    code = f"import torch, twf.jobs.run; torch.zeros(1, device='{kind}')"
    before = os.times()
    subprocess.run([sys.executable, "-c", "import twf.cli" if warm else code], check=True)
    after = os.times()
    user, system = after.children_user, after.children_system
    return user - before.children_user + system - before.children_system


def jobs_at_once(params: Params, kind: Kind, threads: int) -> int:
    """The jobs that `snakemake --cores all` runs side by side."""
    cores = max(1, cpu.cores() // threads)
    return cores if kind == "cpu" else min(cores, len(visible.gpus()) * params.gpu_slots)


def free_memory_mib(kind: Kind) -> float | None:
    """Of the machine, or of the GPU that has least; None where that is not known."""
    if kind == "cpu":
        return cpu.free_memory_mib()
    usage = nvidia.installed()[0]
    used = [usage.get(gpu) for gpu in visible.gpus()]
    return min((gpu.free / MIB for gpu in used if gpu is not None), default=None)


def resources(seconds: list[float], memory_mib: float | None) -> dict[str, int]:
    """What to ask a cluster for: `runtime` (minutes) and, where memory is known, `mem_mb`.

    Enough for the longest and the largest job, and half as much again; 10 minutes at least.
    """
    asked = {"runtime": 10 * math.ceil(1.5 * max(seconds) / 600)}
    if memory_mib is not None:
        asked["mem_mb"] = 1000 * math.ceil(1.5 * memory_mib * MIB / 1e9)
    return asked


def _row(name: str, costs: list[Cost]) -> dict[str, Any]:
    """What a method's runs on a benchmark take, or a pretraining."""
    return {
        "name": name,
        "runs": len(costs),
        "seconds": mean(cost.seconds for cost in costs),
        "hours": sum(cost.seconds for cost in costs) / 3600,
        "memory_mib": max(cost.memory_mib for cost in costs),
        "estimated": sum(cost.estimated for cost in costs),
    }


def show(found: dict[str, Any]) -> None:
    """Print a forecast."""
    console, size, jobs = Console(), disk.size, found["jobs"]
    counted = sum(row["runs"] for row in found["runs"])
    table = Table(title=f"forecast for {found['device']}")
    table.add_column("what", no_wrap=True)
    for column in ("runs", "of them estimated", "each", "hours"):
        table.add_column(column, justify="right")
    for row in found["runs"]:
        days, hours = row["seconds"] / 86400, f"{row['hours']:.2f}"
        each = f"{days:.1f} days" if days > 1 else timedelta(seconds=round(row["seconds"]))
        table.add_row(row["name"], str(row["runs"]), str(row["estimated"]), str(each), hours)
    if counted:
        console.print(table)
    if counted or not found["unknown"]:
        least = f"of {counted} of {found['jobs_left']} jobs" if found["unknown"] else "of jobs"
        console.print(
            f"{found['hours']:.2f} hours {least}, {found['wall_hours']:.2f} with {jobs} at once; "
            "preparing data, tables and report not counted"
        )
    parts = dict(found["disk"])
    free, memory = parts.pop("free_mib"), found["memory"]
    listed = ", ".join(f"{name[:-4]} {size(mib)}" for name, mib in parts.items() if mib is not None)
    console.print(f"disk: {listed} or more; free {size(free)}")
    room = "" if memory["free_mib"] is None else f"; free {size(memory['free_mib'])}"
    if counted:
        console.print(f"memory: up to {size(memory['run_mib'])} a run{room}")
    warnings = {
        f"not timed and not counted: {', '.join(found['unknown'])}": found["unknown"],
        "timing was stopped: the same command goes on from here": found["stopped"],
        "the disk is too small": sum(mib or 0 for mib in parts.values()) > free,
        f"memory is short for {jobs} jobs at once; snakemake --cores N starts fewer": room
        and memory["run_mib"] * jobs > memory["free_mib"],
    }
    for text, so in warnings.items():
        if so:
            console.print(f"[red]{text}[/]")
    for rule, asked in found["resources"].items():
        words = ", ".join(f"{name}: {amount} * attempt" for name, amount in asked.items())
        console.print(f"for a cluster's profile, {rule}: {words}")
