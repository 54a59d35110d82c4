"""How long what remains of a study takes, and what it needs, on the machine at hand."""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table

from twf.data.counts import count
from twf.errors import UserError
from twf.forecast import disk, timing
from twf.gpus import cpu, visible
from twf.progress import progress
from twf.study import Plan, Run
from twf.study.methods import METHODS
from twf.study.params import Execution, Params

# Runs that are alike in these are taken to cost the same.
KIND = {"benchmark", "method", "network", "precision", "buffer", "probes", "held_out"}


def forecast(
    params: Params,
    plan: Plan,
    status: dict[str, Any],
    kind: Literal["cpu", "cuda"],
    threads: int,
    execution: Execution = "plain",
) -> dict[str, Any]:
    """What remains of a study, as `status.of_plan` has it, in times and sizes; plain values.

    One run of each kind is timed. Raises `UserError` where the device cannot do what `execution`
    asks, or its memory does not hold a run.
    """
    if kind == "cpu" and "captured" in execution:
        raise UserError("only steps on a GPU are captured: --execution plain or compiled")
    images = {name: count(name, params.datasets[name]) for name in status["data"]}
    runs = [
        pretraining(params, name, like=next(iter(plan.runs.values())))
        for name, state in status["sources"].items()
        if state != "done" and params.sources[name].trained_on
    ]
    runs += [run for name, run in plan.runs.items() if status["runs"][name]["status"] != "done"]
    kinds = defaultdict[str, list[Run]](list)
    for run in runs:
        kinds[run.model_dump_json(include=KIND)].append(run)
    rows, rules = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    torch.set_num_threads(threads)
    with progress("timing a run of each kind", len(kinds)) as advance:
        for run, *others in kinds.values():
            pretrained = run.tasks == 1
            name = run.benchmark if pretrained else f"{run.benchmark}.{run.method}"
            try:
                seconds = timing.seconds(params, run, images, torch.device(kind), execution)
            except torch.OutOfMemoryError:
                raise UserError(f"the memory of the GPU is too small for a run: {name}") from None
            rows[name] += [seconds] * (1 + len(others))
            rules["pretrain" if pretrained else "run"] += [seconds] * (1 + len(others))
            advance(1, name)
    jobs = max(1, cpu.cores() // threads)  # that `snakemake --cores all` runs side by side
    if kind == "cuda":
        jobs = min(jobs, len(visible.gpus()) * params.gpu_slots)
    return {
        "device": visible.gpus()[0].name if kind == "cuda" else cpu.cpu_name(threads),
        "jobs": jobs,
        "runs": [{"name": name, "seconds": each} for name, each in rows.items()],
        "hours": sum(map(sum, rules.values())) / 3600,
        # where no job waits for another, and none takes longest
        "wall_hours": sum(max(max(s), sum(s) / jobs) for s in rules.values()) / 3600,
        # minutes: half as much again as the longest
        "runtime": {rule: 10 * math.ceil(1.5 * max(s) / 600) for rule, s in rules.items()},
        "disk_mib": disk.needed(params, plan, jobs),
        "free_mib": shutil.disk_usage(Path()).free / disk.MIB,
    }


def pretraining(params: Params, source: str, like: Run) -> Run:
    """Training on a source's data, as a run of Finetune on one task; `like` has the rest."""
    recipe, data = params.sources[source].pretraining, params.sources[source].data
    assert recipe is not None and data is not None  # `Source` holds this
    change = {
        "benchmark": f"pretraining.{source}",
        "data": data,
        "source": source,
        "network": params.sources[source].network,
        "augmentation": params.datasets[data].augmentation,
        "method": "finetune",
        "tasks": 1,
        "classes": params.datasets[data].classes,
        "hyperparameters": METHODS["finetune"].hyperparameters(lr=recipe.lr),
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "precision": recipe.precision,
    }
    without = ("buffer", "probes", "source_data", "lr_decay", "held_out")
    return like.model_copy(update=dict.fromkeys(without) | change)


def show(found: dict[str, Any]) -> None:
    """Print a forecast."""
    console, size, free = Console(), disk.size, found["free_mib"]
    table = Table(title=f"estimate for {found['device']}")
    table.add_column("what")
    for column in ("runs", "each", "hours"):
        table.add_column(column, justify="right")
    for row in found["runs"]:
        together, runs = sum(row["seconds"]), len(row["seconds"])
        each = timedelta(seconds=round(together / runs))
        table.add_row(row["name"], str(runs), str(each), f"{together / 3600:.2f}")
    if found["runs"]:
        console.print(table)
    console.print(
        f"about {found['hours']:.2f} hours of jobs, {found['wall_hours']:.2f} with {found['jobs']} "
        "at once: estimated from a few steps of each kind of run, on this machine as busy as it is "
        "now; start-up, compiling, preparing data, tables and report are not counted"
    )
    parts = found["disk_mib"]
    listed = ", ".join(f"{name} {size(mib)}" for name, mib in parts.items())
    console.print(f"disk: {listed} or more; free {size(free)}")
    if sum(parts.values()) > free:
        console.print("[red]the disk is too small[/]")
    for rule, minutes in found["runtime"].items():
        console.print(f"for a cluster's profile, {rule}: runtime: {minutes} * attempt")
