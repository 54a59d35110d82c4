"""The disk that what remains of a study needs, beside what is free. No torch here."""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

from twf import files
from twf.data import fetch, registry
from twf.data.counts import count
from twf.errors import UserError
from twf.forecast.work import MIB, network_mib, pixels_mib
from twf.study import Plan, needed_data
from twf.study.params import Params

CLOSE = 0.8  # of what is free: a study that needs more is told
FULL = 1.0  # MiB: a disk with less is called full

# Where each part comes to lie; any of these folders may be a link to one on another disk.
FOLDERS = {
    "archives": files.ARCHIVES,
    "data": Path(files.DATA).parent,
    "checkpoints": Path(files.CHECKPOINT).parent,
    "records": Path("results"),
    "states": Path("states"),
}


def needed(params: Params, plan: Plan, jobs: int) -> dict[str, float | None]:
    """MiB that what remains adds to each of `FOLDERS`; None for records before the first is there.

    Records are as large as those that are there. Of each job's state there are two at times, and
    it is no less than its network. A user's own archive that is not there is not counted:
    `twf.data.preflight` refuses that.
    """
    sources = {name: params.sources[name] for name in plan.sources}
    missing = [
        name
        for name in needed_data(params, plan)
        if not files.data_file(name).exists()
        and Path(getattr(params.datasets[name], "file", "")).exists()
    ]
    unmade = [name for name in sources if not files.checkpoint_file(name).exists()]
    left = [run for run in plan.runs.values() if not files.record_file(plan.study, run.id).exists()]
    there = [path.stat().st_size for path in files.record_file(plan.study, "").parent.glob("*")]

    archives = {getattr(params.datasets[name], "archive", None) for name in missing}
    archives |= {registry.of_file(Path(str(sources[name].weights))) for name in unmade}
    states = [network_mib(run.network) for run in left]
    return {
        "archives": sum(
            fetch.remaining(name, registry.entry(name)) for name in archives if name is not None
        )
        / MIB,
        "data": sum(
            pixels_mib(count(name, params.datasets[name]), params.datasets[name].size)
            for name in missing
        ),
        "checkpoints": sum(network_mib(sources[name].network) for name in unmade),
        "records": len(left) * mean(there) / MIB if there else None,
        "states": jobs * 2 * max(states, default=0.0),
    }


def check(params: Params, plan: Plan) -> str | None:
    """Say where the disk is only just large enough for what remains of a study; None elsewhere.

    Raises `UserError` where it is certainly too small, whatever the number of jobs.
    """
    parts: defaultdict[int, dict[str, float]] = defaultdict(dict)
    folders: dict[int, Path] = {}
    for name, mib in needed(params, plan, jobs=1).items():
        folder = FOLDERS[name]
        if mib:
            there = _existing(folder)
            disk = os.stat(there).st_dev
            parts[disk][name] = mib
            folders.setdefault(disk, there)
    close = []
    for disk, found in parts.items():
        together, free = sum(found.values()), shutil.disk_usage(folders[disk]).free / MIB
        each = ", ".join(f"{name} {size(mib)}" for name, mib in found.items())
        said = (
            f"what remains of study {plan.study} needs {size(together)} or more on the disk of "
            f"{folders[disk].resolve()} ({each}), and {size(free)} are free"
        )
        remedy = "free some (`twf clean` shows what can go), or make folders links to another disk"
        if together > free:
            raise UserError(f"{said}: {remedy}")
        if together > CLOSE * free:
            close.append(f"{said}: it may become too small; {remedy}")
    return "; ".join(close) or None


def say_where_full() -> None:
    """Name the disks on which nothing can be written any more: a job's log may lie there too."""
    found = [_existing(folder) for folder in (*FOLDERS.values(), Path())]
    for folder in {os.stat(folder).st_dev: folder for folder in found}.values():
        if shutil.disk_usage(folder).free < FULL * MIB:
            print(
                f"the disk of {folder.resolve()} is full: free some (`twf clean` shows what can "
                "go), then call again",
                file=sys.stderr,
            )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def size(mib: float) -> str:
    """MiB, or GiB where they are many."""
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"
