"""What Snakemake, DVC and Weights & Biases have and lack here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from twf.forecast import disk
from twf.study.params import Params
from twf.upkeep import clean
from twf.upkeep.doctor.check import Check


def snakemake() -> Iterator[Check]:
    """Whether a Snakemake has locked the folder."""
    if clean.is_locked():
        said = "it has locked this folder: it is at work, or was killed"
        yield Check("snakemake", "warning", said, "where none runs: snakemake --unlock")
    else:
        yield Check("snakemake", "ok", "no lock is left behind")


def dvc() -> Iterator[Check]:
    """How DVC's cache is linked, where it is, and whether it has a remote to share by."""
    command = Path(sys.executable).with_name("dvc")
    if not command.exists():
        yield Check("dvc", "warning", "not installed: Snakemake works without it", "make setup")
        return
    done = subprocess.run([command, "config", "--list"], capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        yield Check("dvc", "wrong", said, "mend .dvc/config: git diff .dvc/config")
        return
    values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    kind = values.get("cache.type", "DVC's default")
    if kind != "copy":
        said = f"cache.type is {kind}: Snakemake would take its links for changed or stale files"
        yield Check("dvc cache", "wrong", said, "dvc config cache.type copy")
    else:
        place = Path(".dvc", values.get("cache.dir", "cache"))
        there = next(path for path in (place, *place.absolute().parents) if path.exists())
        free = disk.size(shutil.disk_usage(there).free / disk.MIB)
        good = os.access(there, os.W_OK)
        remedy = "let it be written to, or: dvc cache dir --local FOLDER"
        said = f"copies in {place}, {free} free" if good else f"{there} cannot be written to"
        yield Check("dvc cache", "ok" if good else "wrong", said, "" if good else remedy)
    if "core.remote" in values:
        yield Check("dvc remote", "ok", values["core.remote"])
    else:
        said = "no default remote: dvc push and dvc pull have nowhere to go"
        yield Check("dvc remote", "warning", said, "dvc remote add --default NAME WHERE")


def tracking(params: Params) -> Iterator[Check]:
    """Whether Weights & Biases has the key that the mode of tracking needs."""
    from twf.tracking import client, live

    mode = os.environ.get(live.SWITCH, params.tracking.mode)
    if mode not in live.MODES:
        said = f"{live.SWITCH} is {mode!r}; allowed: {', '.join(live.MODES)}"
        yield Check("tracking", "wrong", said, f"unset {live.SWITCH}")
    elif mode == "online" and not client.has_key():
        remedy = "wandb login, or set WANDB_API_KEY; or TWF_TRACKING=offline"
        yield Check("tracking", "wrong", "online, and there is no key", remedy)
    else:
        yield Check("tracking", "ok", mode if mode == "off" else f"{mode}: {client.resolve(mode)}")


def states(params: Params) -> Iterator[Check]:
    """Whether saved states are left of what is not planned any more."""
    left = clean.orphaned_states(params)
    if left:
        more = f" and {len(left) - 1} others" if len(left) > 1 else ""
        said = f"{left[0]}{more}: of runs that no study has"
        yield Check("states", "warning", said, "twf clean --kind states, which --yes removes")
    else:
        yield Check("states", "ok", "none of runs that no study has")
