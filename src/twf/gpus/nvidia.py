"""What NVIDIA's driver, its tool `nvidia-smi` and a fresh PyTorch say of GPUs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

DRIVER = Path("/proc/driver/nvidia/gpus")  # a folder in it for each GPU that the driver has
PATIENCE = 180.0  # seconds for PyTorch to be imported and to use a GPU, or for `nvidia-smi`

_GPU = re.compile(r"GPU \d+: (.+) \(UUID: (GPU-[^)]+)\)")
_INSTANCE = re.compile(r"\s+(MIG \S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


class Gpu(NamedTuple):
    """An NVIDIA GPU, or an instance of one (MIG), by CUDA's identifier and name for it."""

    id: str
    name: str


class Usage(NamedTuple):
    """What all processes on a GPU use of it, other users' too."""

    free_mib: int
    total_mib: int
    busy: float  # the share of the last moments in which it computed, 0 to 1

    @property
    def load(self) -> float:
        """The share of its memory in use and that of its time, added: 0 to 2."""
        return 1 - self.free_mib / self.total_mib + self.busy


def installed() -> tuple[list[Gpu], str]:
    """The GPUs that `nvidia-smi -L` lists, and what it complains of; nothing where all is well.

    Of a GPU that does not answer any more it says so in a line of its own and lists the others; it
    may then fail or not. Where a container has the driver without this tool, the driver's own files
    tell as far as they do.
    """
    if shutil.which("nvidia-smi") is None:
        return parse(_by_the_driver()), ""
    status, said, complaint = _ask(["nvidia-smi", "-L"])
    other = [
        line.strip()
        for line in [*said.splitlines(), *complaint.splitlines()]
        if line.strip() and not _GPU.match(line) and not _INSTANCE.match(line)
    ]
    return parse(said), "; ".join(other) or (f"it ended with status {status}" if status else "")


def _by_the_driver() -> str:
    """The GPUs as `nvidia-smi -L` would list them; but no instances (MIG)."""
    lines = []
    for number, file in enumerate(sorted(DRIVER.glob("*/information"))):
        values = dict(re.findall(r"^(.+?):\s+(.+?)\s*$", file.read_text(), flags=re.M))
        lines.append(f"GPU {number}: {values['Model']} (UUID: {values['GPU UUID']})\n")
    return "".join(lines)


def parse(listing: str) -> list[Gpu]:
    """The devices of a listing; a GPU that is cut into instances (MIG) gives these in its place."""
    found: list[Gpu] = []
    whole = ""
    for line in listing.splitlines():
        if match := _GPU.match(line):
            whole = match[1]
            found.append(Gpu(match[2], whole))
        elif match := _INSTANCE.match(line):
            if found[-1].id.startswith("GPU-"):
                found.pop()
            found.append(Gpu(match[2], f"{whole} {match[1]}"))
    return found


def usage() -> dict[str, Usage]:
    """By identifier, how much each GPU is used; those are missing of which that is not known.

    That is so of instances (MIG), and of all where there is no `nvidia-smi`.
    """
    if shutil.which("nvidia-smi") is None:
        return {}
    keys = "uuid,memory.free,memory.total,utilization.gpu"
    _, said, _ = _ask(["nvidia-smi", f"--query-gpu={keys}", "--format=csv,noheader,nounits"])
    # a GPU without such a counter has [N/A] there
    rows = re.findall(r"^(GPU-\S+), (\d+), ([1-9]\d*), (\d+|\[.*\])\s*$", said, flags=re.M)
    return {
        gpu: Usage(int(free), int(total), int(busy) / 100 if busy.isdigit() else 0.0)
        for gpu, free, total, busy in rows
    }


def refuses(gpu: Gpu) -> str | None:
    """What PyTorch says when it is to compute on a GPU; None where it does. In another process."""
    code = "import torch; assert torch.ones(8, device='cuda').sum().item() == 8.0"
    status, _, said = _ask([sys.executable, "-c", code], {"CUDA_VISIBLE_DEVICES": gpu.id})
    return None if status == 0 else (said.strip().splitlines() or ["it died"])[-1]


def _ask(words: Sequence[str], more: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit status, output and error output of a command, with `more` in its environment.

    One that does not answer in time is killed, but not waited for: in a broken driver it may hang
    beyond the reach of any signal.
    """
    process = subprocess.Popen(
        words,
        env=os.environ | (more or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        said, complaint = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return -1, "", f"no answer in {PATIENCE:.0f} seconds"
    return process.returncode, said, complaint
