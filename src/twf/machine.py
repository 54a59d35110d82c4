"""What of the machine the pipeline needs to know before PyTorch is imported."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from twf.errors import UserError

# How a training step is executed: see `twf.training.step`.
Execution = Literal["plain", "compiled", "captured", "compiled-captured"]
EXECUTIONS: tuple[Execution, ...] = get_args(Execution)


class Gpu(NamedTuple):
    """An NVIDIA GPU, or an instance of one (MIG), by CUDA's identifier and name for it."""

    id: str
    name: str


def gpus() -> list[Gpu]:
    """The GPUs that jobs may use, `CUDA_VISIBLE_DEVICES` respected.

    None where PyTorch is built for CPUs alone.
    """
    if version("torch").endswith("+cpu"):
        return []
    return visible(parse(listing()), os.environ.get("CUDA_VISIBLE_DEVICES"))


def kind(device: Literal["auto", "cpu", "cuda"]) -> Literal["cpu", "cuda"]:
    """What `--device` stands for here. Raises `UserError` where there is no such device."""
    if device == "cpu" or gpus():
        return "cpu" if device == "cpu" else "cuda"
    if device == "cuda":
        raise UserError("no CUDA device here; leave --device away, or say --device cpu")
    return "cpu"


def listing() -> str:
    """The installed GPUs as `nvidia-smi -L` lists them; empty where there is none.

    Where a container has the driver without this tool, as far as the driver's own files tell.
    """
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
        said = (done.stdout + done.stderr).strip()
        print(f"warning: no GPU is used, as nvidia-smi -L failed: {said}", file=sys.stderr)
        return ""
    lines = []
    for number, file in enumerate(sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))):
        values = dict(re.findall(r"^(.+?):\s+(.+?)\s*$", file.read_text(), flags=re.M))
        lines.append(f"GPU {number}: {values['Model']} (UUID: {values['GPU UUID']})\n")
    return "".join(lines)


def parse(listing: str) -> list[Gpu]:
    """The devices of a listing; a GPU that is cut into instances (MIG) gives these in its place."""
    found: list[Gpu] = []
    whole = ""
    for line in listing.splitlines():
        if match := re.match(r"GPU \d+: (.+) \(UUID: (GPU-[^)]+)\)", line):
            whole = match[1]
            found.append(Gpu(match[2], whole))
        elif match := re.match(r"\s+(MIG \S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)", line):
            if found[-1].id.startswith("GPU-"):
                found.pop()
            found.append(Gpu(match[2], f"{whole} {match[1]}"))
    return found


def visible(found: Sequence[Gpu], shown: str | None) -> list[Gpu]:
    """Those of `found` that `CUDA_VISIBLE_DEVICES` shows, by number or by (start of) identifier.

    As for CUDA, what follows a word that names none does not count. Numbers are in the order of
    the buses, as `nvidia-smi` has them (`CUDA_DEVICE_ORDER=PCI_BUS_ID`).
    """
    if shown is None:
        return list(found)
    chosen: list[Gpu] = []
    for word in (word.strip() for word in shown.split(",")):
        if word.isdigit():
            named = list(found[int(word) : int(word) + 1])
        else:
            named = [gpu for gpu in found if word and gpu.id.startswith(word)]
        if len(named) != 1:
            break
        chosen += named
    return list(dict.fromkeys(chosen))


def cpu_name(threads: int) -> str:
    """The processor's model, with the threads in use."""
    model = platform.machine()
    with_names = Path("/proc/cpuinfo")
    if with_names.exists():
        for line in with_names.read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {threads} threads"


def cores() -> int:
    """The CPU cores that this process may use: what `snakemake --cores all` takes."""
    return len(os.sched_getaffinity(0))


def free_memory_mib() -> float:
    """The main memory that can be had without swapping."""
    text = Path("/proc/meminfo").read_text()
    (kib,) = re.findall(r"^MemAvailable:\s+(\d+) kB$", text, flags=re.M)
    return int(kib) / 2**10


def put_own_command_on_path() -> None:
    """Let `twf` mean the one beside this Python, also where its environment is not activated."""
    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]


def stop_with_parent() -> None:
    """Have this process sent SIGTERM when the one that started it ends, however that ends.

    Snakemake does not take what a job makes that outlives it: it makes that anew. So a run saves
    its state instead, and the next job goes on from there.
    """
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of Linux's <sys/prctl.h>
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def refuse_copies_by_dvc() -> None:
    """Raise `UserError` in the copy of the folder that DVC makes for an experiment.

    It has what the commit's runs made, without Snakemake's notes on how: with these parameters
    changed, it would pass for up to date.
    """
    if "/.dvc/tmp/exps/" in f"{Path.cwd().as_posix()}/":
        raise UserError(
            "in DVC's own copy of this folder old results would pass for new ones, as Snakemake "
            "has no notes on them there: leave --temp and --queue away, or clone the project and "
            "do `dvc exp run` in the clone"
        )
