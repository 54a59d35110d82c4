"""What is wrong with a set-up, and the remedy. No check changes anything."""

import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from twf import checkout
from twf.errors import UserError
from twf.gpus import devices
from twf.study.params import Params
from twf.study.products import Products
from twf.tracking import live

PACKAGES = ("torch", "snakemake", "dvc", "wandb", "matplotlib")
DRIVER = Path("/proc/driver/nvidia")  # where Linux shows that NVIDIA's driver is loaded


def examine(params: Params) -> Iterator[tuple[str, str, str]]:
    """For each check, one after the other: its name; ok, warning or wrong; and what, with a remedy.

    `UserError` of a check is what is wrong.
    """
    for check in (code, packages, gpus, inputs, tracking):
        try:
            for state, message in check(params):
                yield check.__name__, state, message
        except UserError as error:
            yield check.__name__, "wrong", str(error)


def code(_: Params) -> Iterator[tuple[str, str]]:
    """Whether the code that runs is that of this folder, and of which commit."""
    checkout.refuse_other_code()
    if commit := checkout.commit():
        yield "ok", f"commit {commit[:7]}{'+' * commit.endswith('+')}"
    else:
        yield "warning", "records will name no commit: work in a clone of your own (git clone)"


def packages(_: Params) -> Iterator[tuple[str, str]]:
    """The versions of Python and of the packages that decide most."""
    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    yield "ok", f"Python {platform.python_version()}, {', '.join(versions)}"


def gpus(_: Params) -> Iterator[tuple[str, str]]:
    """The GPUs that jobs use, and whether PyTorch is built for them."""
    torch, usable = metadata.version("torch"), devices.gpus()
    if not usable and torch.endswith("+cpu") and DRIVER.exists():
        remedy = "rm -r .venv && UV_TORCH_BACKEND=auto make setup"
        raise UserError(f"torch {torch} is built for CPUs only: {remedy}")
    yield "ok", ", ".join(usable) or "none shown; jobs train on CPU cores"


def inputs(params: Params) -> Iterator[tuple[str, str]]:
    """Whether the data sets and networks that are there are as `params.yaml` asks."""
    products = Products(params)
    held = {f"twf data prepare {name}": products.data(name) for name in params.datasets}
    held |= {f"twf pretrain {name}": products.network(name) for name in params.sources}
    made = sum(product.made is not None for product in held.values())
    yield "ok", f"{made} data sets and networks are there"
    for remedy, product in held.items():
        if product.state == "stale":
            yield "warning", f"{product.file} is stale, {product.why}: {remedy}, or Snakemake"


def tracking(params: Params) -> Iterator[tuple[str, str]]:
    """Whether runs go to Weights & Biases, and what decides that."""
    chosen, reason = live.decided(params.tracking)
    yield "ok", f"{chosen}, by {reason}"
