"""What is wrong with a set-up, and the remedy. No check changes anything."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from twf import checkout
from twf.errors import UserError
from twf.gpus import devices
from twf.study.params import Params
from twf.study.products import Products
from twf.tracking import mode

PACKAGES = ("torch", "snakemake", "dvc", "wandb", "matplotlib")
DRIVER = Path("/proc/driver/nvidia")  # where Linux shows that NVIDIA's driver is loaded


class Check(NamedTuple):
    """The result of looking at one thing, and the remedy where something is wrong with it."""

    name: str
    state: Literal["ok", "warning", "wrong"]
    message: str
    remedy: str = ""


def examine(params: Params) -> Iterator[Check]:
    """All checks, one after the other."""
    for check in (code, packages, gpus, inputs, tracking):
        try:
            yield from check(params)
        except UserError as error:  # its message has the remedy
            yield Check(check.__name__, "wrong", str(error))


def show(checks: Iterable[Check]) -> bool:
    """Print each check as it is done; whether nothing is wrong."""
    well = True
    for check in checks:
        remedy = f". To mend it: {check.remedy}" if check.remedy else ""
        print(f"{check.state:<8}{check.name:<11}{check.message}{remedy}", flush=True)
        well &= check.state != "wrong"
    return well


def code(_: Params) -> Iterator[Check]:
    """Whether the code that runs is that of this folder, and of which commit."""
    checkout.refuse_other_code()
    if commit := checkout.commit():
        yield Check("code", "ok", f"commit {commit[:7]}{'+' * commit.endswith('+')}")
    else:
        remedy = "work in a clone of your own (git clone)"
        yield Check("code", "warning", "records will name no commit", remedy)


def packages(_: Params) -> Iterator[Check]:
    """The versions of Python and of the packages that decide most."""
    installed = {package.name: package.version for package in metadata.distributions()}
    versions = [f"{name} {installed.get(name, 'missing')}" for name in PACKAGES]
    yield Check("packages", "ok", f"Python {platform.python_version()}, {', '.join(versions)}")


def gpus(_: Params) -> Iterator[Check]:
    """The GPUs that jobs use, and whether PyTorch is built for them."""
    torch, usable = metadata.version("torch"), devices.gpus()
    if not usable and torch.endswith("+cpu") and DRIVER.exists():
        remedy = "rm -r .venv && UV_TORCH_BACKEND=auto make setup"
        yield Check("gpus", "wrong", f"torch {torch} is built for CPUs only", remedy)
    else:
        yield Check("gpus", "ok", ", ".join(usable) or "none shown; jobs train on CPU cores")


def inputs(params: Params) -> Iterator[Check]:
    """Whether the data sets and networks that are there are as `params.yaml` asks."""
    products = Products(params)
    held = {f"twf data prepare {name}": products.data(name) for name in params.datasets}
    held |= {f"twf pretrain train {name}": products.network(name) for name in params.sources}
    stale = {remedy: product for remedy, product in held.items() if product.state == "stale"}
    for remedy, product in stale.items():
        again = f"{remedy}, or Snakemake; or take the change of params.yaml back"
        yield Check("inputs", "warning", f"{product.file} is stale: {product.why}", again)
    if not stale:
        count = sum(product.made is not None for product in held.values())
        yield Check("inputs", "ok", f"{count} data sets and networks, as params.yaml has them")


def tracking(params: Params) -> Iterator[Check]:
    """Whether runs go to Weights & Biases, and what decides that."""
    chosen, reason = mode.decided(params.tracking)
    yield Check("tracking", "ok", f"{chosen}, by {reason}")
