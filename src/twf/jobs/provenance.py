"""Where a result comes from: code, versions, device."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twf
from twf.data.checks import is_hidden
from twf.errors import warn
from twf.files import sha256
from twf.gpus import cpu
from twf.study.code import code_hash

# what can change a number, in a checkout: code, parameters, and the packages it runs with
DECIDE = ("src", "params.yaml", "pyproject.toml", "constraints.txt")
ELSEWHERE = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
PACKED = "commit.json"  # beside src/: the commit, and the digests of what decides


def device_and_versions(device: torch.device) -> dict[str, Any]:
    """The device's name, which GPU it is, and the versions of what computes."""
    cuda = device.type == "cuda"
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "cudnn": str(torch.backends.cudnn.version()) if cuda else None,
    }
    return {
        "device": device_name(device),
        "gpu": f"GPU-{torch.cuda.get_device_properties(device).uuid}" if cuda else None,
        "versions": {k: v for k, v in versions.items() if v},
    }


def device_name(device: torch.device) -> str:
    """The GPU's name, or the CPU's with the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu.cpu_name(torch.get_num_threads())


def arithmetic_units(device: torch.device) -> dict[str, Any]:
    """The kind of device, and a CPU's threads: sums over more threads have other last bits."""
    threads = torch.get_num_threads() if device.type == "cpu" else None
    return {"device": device.type, "threads": threads}


def code_origin(*roots: str) -> dict[str, str | None]:
    """The package's version, the git commit it was run from, and the hash of what `roots` use."""
    return {"version": twf.__version__, "commit": commit(), "method_hash": code_hash(*roots)}


def commit() -> str | None:
    """The commit of the checkout this code lies in, with `+` where what decides differs from it.

    A checkout that went to another machine without its git has the file `PACKED` in its place.
    None for code that no commit has: installed from a wheel, or where there is neither.
    """

    def git(folder: str | Path, *words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        # a hook or another repository's GIT_DIR is not about this folder
        own = {key: value for key, value in os.environ.items() if key not in ELSEWHERE}
        return subprocess.run(
            command, capture_output=True, text=True, check=True, encoding="utf-8", env=own
        ).stdout.strip()

    package = Path(twf.__file__).parent
    try:
        # a wheel may lie in a folder that the git of another project ignores
        git(package, "ls-files", "--error-unmatch", "__init__.py")
        top = git(package, "rev-parse", "--show-toplevel")
        changed = git(top, "status", "--porcelain", "--", *DECIDE)
        return git(top, "rev-parse", "HEAD") + ("+" if changed else "")
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        if "dubious ownership" in str(getattr(error, "stderr", "")):
            warn(
                "git refuses this folder, as it is another user's, so that records name no commit: "
                f"git config --global --add safe.directory {package.parents[1]}"
            )
        return _packed_commit(package.parents[1])  # without one, version and hash remain


def pack_commit(top: Path, commit: str) -> None:
    """Write `PACKED` in a checkout that is `commit`'s, for where it goes without its git."""
    digests = {name: sha256(top / name) for name in _deciding(top)}
    (top / PACKED).write_text(
        json.dumps({"commit": commit, "files": digests}, indent=1), encoding="utf-8"
    )


def _packed_commit(top: Path) -> str | None:
    try:
        packed = json.loads((top / PACKED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    same = packed["files"] == {name: sha256(top / name) for name in _deciding(top)}
    return packed["commit"] + ("" if same else "+")


def _deciding(top: Path) -> list[str]:
    """The files of `DECIDE` in a checkout, those aside that Python or a system leaves there."""
    found = [top / name for name in DECIDE if (top / name).is_file()]
    found += [path for path in (top / "src").rglob("*") if path.is_file()]
    inner = (path.relative_to(top) for path in found)
    return sorted(
        str(path) for path in inner if not (is_hidden(path) or "__pycache__" in path.parts)
    )
