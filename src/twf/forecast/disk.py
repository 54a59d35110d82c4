"""The disk that what remains of a study needs, beside what is free. No torch here."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from twf import files
from twf.data import fetch, registry
from twf.data.counts import count
from twf.errors import UserError
from twf.study import Plan, needed_data
from twf.study.params import Network, Params

MIB = 2**20
# Values of each network at width 64 without its head; their number grows as the width's square.
VALUES = {"resnet18": 11.17e6, "resnet50": 23.5e6}

# Where each part comes to lie; any of these folders may be a link to one on another disk.
FOLDERS = {
    "archives": files.ARCHIVES,
    "data": Path(files.DATA).parent,
    "checkpoints": Path(files.CHECKPOINT).parent,
    "states": Path("states"),
}


def needed(params: Params, plan: Plan, jobs: int) -> dict[str, float]:
    """MiB that what remains adds to each of `FOLDERS`, at least; records are small.

    Of each job's state there are two at times, and it is no less than its network. A user's own
    archive that is not there is not counted: `twf.data.preflight` refuses that.
    """
    sources = {name: params.sources[name] for name in plan.sources}
    missing = {
        name: params.datasets[name]
        for name in needed_data(params, plan)
        if not files.data_file(name).exists()
        and Path(getattr(params.datasets[name], "file", "")).exists()
    }
    unmade = [name for name in sources if not files.checkpoint_file(name).exists()]
    left = [run for run in plan.runs.values() if not files.record_file(plan.study, run.id).exists()]
    archives = {getattr(dataset, "archive", None) for dataset in missing.values()}
    archives |= {registry.of_file(Path(str(sources[name].weights))) for name in unmade}
    fetched = [fetch.remaining(name, registry.entry(name)) for name in archives if name]
    counts = [(count(name, dataset), dataset.size) for name, dataset in missing.items()]
    return {
        "archives": sum(fetched) / MIB,
        "data": sum((n.train + n.test) * size**2 * 3 for n, size in counts) / MIB,
        "checkpoints": sum(network_mib(sources[name].network) for name in unmade),
        "states": jobs * 2 * max((network_mib(run.network) for run in left), default=0.0),
    }


def check(params: Params, plan: Plan) -> None:
    """Raise `UserError` where a disk is certainly too small for what remains of a study."""
    parts = {name: mib for name, mib in needed(params, plan, jobs=1).items() if mib}
    folders = {name: _existing(FOLDERS[name]) for name in parts}
    for disk in {os.stat(folder).st_dev for folder in folders.values()}:
        on = {name: folder for name, folder in folders.items() if os.stat(folder).st_dev == disk}
        folder, together = next(iter(on.values())), sum(parts[name] for name in on)
        free = shutil.disk_usage(folder).free / MIB
        if together > free:
            each = ", ".join(f"{name} {size(parts[name])}" for name in on)
            raise UserError(
                f"what remains of study {plan.study} needs {size(together)} or more on the disk of "
                f"{folder.resolve()} ({each}), and {size(free)} are free: free some (`twf clean` "
                "shows what can go), or make folders links to another disk"
            )


def say_where_full() -> None:
    """Name the disks on which nothing can be written any more: a job's log may lie there too."""
    found = [_existing(folder) for folder in (*FOLDERS.values(), Path("results"), Path())]
    for folder in {os.stat(folder).st_dev: folder for folder in found}.values():
        if shutil.disk_usage(folder).free < MIB:
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


def network_mib(network: Network) -> float:
    """The least that a file of a network's weights takes."""
    return VALUES[network.architecture] * (network.width / 64) ** 2 * 4 / MIB
