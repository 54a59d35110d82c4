"""Where a result comes from: code, versions, device."""

import platform
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import twf
from twf import checkout
from twf.gpus import cpu
from twf.learning.precision import set_precision
from twf.study import products
from twf.study.code import code_hash


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

    def guard(self, plan: products.Values, device: torch.device) -> dict[str, Any]:
        """What a saved state must agree in to be gone on from.

        A commit that changes nothing of the code that computes keeps the state, and so does another
        processor of the same kind; sums over other threads have other last bits.
        """
        return vars(self) | {
            "plan": products.digest(plan),
            "code": self.code["method_hash"],
            "device": device.type,
            "gpu": None,
            "threads": torch.get_num_threads() if device.type == "cpu" else None,
        }


def set_up(
    device: torch.device, execution: str, precision: str, inputs: dict[str, str], *roots: str
) -> Origin:
    """Set the precision of PyTorch; the origin of what this process then makes by `roots`."""
    chosen = set_precision(precision, device)
    return Origin(
        code=code_origin(*roots),
        inputs=inputs,
        execution=execution,
        precision=chosen,
        deterministic=device.type == "cpu" or torch.are_deterministic_algorithms_enabled(),
        **device_and_versions(device),
    )


def device_and_versions(device: torch.device) -> dict[str, Any]:
    """The device's name, which GPU it is, and the versions of what computes."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    versions["numpy"] = np.__version__
    if device.type != "cuda":
        name = cpu.cpu_name(torch.get_num_threads())
        return {"device": name, "gpu": None, "versions": versions}
    properties = torch.cuda.get_device_properties(device)
    versions |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return {"device": properties.name, "gpu": f"GPU-{properties.uuid}", "versions": versions}


def code_origin(*roots: str) -> dict[str, str | None]:
    """The package's version, the git commit it was run from, and the hash of what `roots` use."""
    hashed = code_hash(*roots)
    return {"version": twf.__version__, "commit": checkout.commit(), "method_hash": hashed}
