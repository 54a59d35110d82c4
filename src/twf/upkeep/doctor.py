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
    """For each check, in order: its name; ok, warning or wrong; and what, with a remedy."""
    for check in (_code, _gpus, _inputs, _tracking):
        name = check.__name__.removeprefix("_")
        try:
            for state, message in check(params):
                yield name, state, message
        except UserError as error:
            yield name, "wrong", str(error)
        except metadata.PackageNotFoundError as error:
            yield name, "wrong", f"{error}: `make setup` installs all packages"


def _code(_: Params) -> Iterator[tuple[str, str]]:
    checkout.refuse_other_code()
    if commit := checkout.commit():
        yield "ok", f"commit {commit[:7]}{'+' * commit.endswith('+')}"
    else:
        yield "warning", "records will name no commit: work in a clone of your own (git clone)"
    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    yield "ok", f"Python {platform.python_version()}, {', '.join(versions)}"


def _gpus(_: Params) -> Iterator[tuple[str, str]]:
    torch, usable = metadata.version("torch"), devices.gpus()
    if not usable and torch.endswith("+cpu") and DRIVER.exists():
        remedy = "rm -r .venv && UV_TORCH_BACKEND=auto make setup"
        raise UserError(f"torch {torch} is built for CPUs only: {remedy}")
    yield "ok", ", ".join(usable) or "none shown; jobs train on CPU cores"


def _inputs(params: Params) -> Iterator[tuple[str, str]]:
    products = Products(params)
    held = [*map(products.data, params.datasets), *map(products.network, params.sources)]
    yield "ok", f"{sum(one.made is not None for one in held)} data sets and networks are there"
    for one in held:
        if one.state == "stale":
            yield "warning", f"{one.file} is stale, {one.why}: snakemake --cores all {one.file}"


def _tracking(params: Params) -> Iterator[tuple[str, str]]:
    chosen, reason = live.decided(params.tracking)
    yield "ok", f"{chosen}: {reason}"
