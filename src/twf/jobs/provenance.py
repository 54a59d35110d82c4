"""What made a result beside its plan: code, inputs, versions, device."""

import platform
from typing import Any

import numpy as np
import torch

import twf
from twf import checkout
from twf.gpus import cpu
from twf.learning.precision import set_precision
from twf.study import products
from twf.study.code import code_hash


def set_up(
    device: torch.device, execution: str, precision: str, inputs: dict[str, str], *roots: str
) -> dict[str, Any]:
    """Set the precision of PyTorch; the origin of what this process then makes by `roots`.

    As its record or checkpoint says it: `inputs` are hashes of data and network, `deterministic`
    is whether the result is the same each time, to the last bit.
    """
    return {
        "code": code_origin(*roots),
        "inputs": inputs,
        **device_and_versions(device),
        "execution": execution,
        "precision": set_precision(precision, device),
        "deterministic": device.type == "cpu" or torch.are_deterministic_algorithms_enabled(),
    }


def guard(origin: dict[str, Any], plan: products.Values, device: torch.device) -> dict[str, Any]:
    """What a saved state must agree in to be gone on from.

    A commit that changes nothing of the code that computes keeps the state, and so does another
    processor of the same kind; sums over other threads have other last bits.
    """
    return origin | {
        "plan": products.digest(plan),
        "code": origin["code"]["method_hash"],
        "device": device.type,
        "gpu": None,
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
    }


def device_and_versions(device: torch.device) -> dict[str, Any]:
    """The device's name, which GPU it is (None of a CPU), and the versions of what computes."""
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
