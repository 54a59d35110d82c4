"""Where a result comes from: code, versions, device."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twf
from twf.data.checks import is_hidden
from twf.errors import warn
from twf.files import sha256
from twf.gpus import cpu
from twf.study import products
from twf.study.code import code_hash

# what can change a number, in a checkout: code, parameters, and the packages it runs with
DECIDE = ("src", "params.yaml", "pyproject.toml", "constraints.txt")
ELSEWHERE = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
PACKED = "commit.json"  # beside src/: the commit, and the digests of what decides


@dataclass(frozen=True)
class Origin:
    """What made a result beside its plan, as its record or checkpoint says it."""

    code: dict[str, str | None]  # the package's version, its commit, and a hash of what computed
    inputs: dict[str, str]  # hashes of data and network
    versions: dict[str, str]  # of what computes
    device: str  # the GPU's name, or the CPU's with the threads in use
    gpu: str | None  # which GPU it is
    execution: str
    precision: str
    deterministic: bool  # the same result each time, to the last bit

    @classmethod
    def here(
        cls,
        device: torch.device,
        execution: str,
        precision: str,
        inputs: dict[str, str],
        *roots: str,
    ) -> Origin:
        """The origin of what this process makes on `device` by the modules `roots`."""
        return cls(
            code=code_origin(*roots),
            inputs=inputs,
            execution=execution,
            precision=precision,
            deterministic=device.type == "cpu" or torch.are_deterministic_algorithms_enabled(),
            **device_and_versions(device),
        )

    def guard(self, plan: products.Values, device: torch.device) -> dict[str, Any]:
        """What a saved state must agree in to be gone on from.

        A commit that changes nothing of the code that computes keeps the state, and so does another
        processor of the same kind; sums over other threads have other last bits.
        """
        same = ("inputs", "versions", "execution", "precision", "deterministic")
        return {key: getattr(self, key) for key in same} | {
            "plan": products.digest(plan),
            "code": self.code["method_hash"],
            "device": device.type,
            "threads": torch.get_num_threads() if device.type == "cpu" else None,
        }


def device_and_versions(device: torch.device) -> dict[str, Any]:
    """The device's name, which GPU it is, and the versions of what computes."""
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    if device.type != "cuda":
        name = cpu.cpu_name(torch.get_num_threads())
        return {"device": name, "gpu": None, "versions": versions}
    properties = torch.cuda.get_device_properties(device)
    versions |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return {"device": properties.name, "gpu": f"GPU-{properties.uuid}", "versions": versions}


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
