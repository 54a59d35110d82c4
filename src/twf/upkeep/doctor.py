"""What is wrong with a set-up, and the remedy. No check changes anything."""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.text import Text

import twf
from twf import checkout
from twf.errors import UserError
from twf.gpus import cpu, visible
from twf.study.params import Params
from twf.study.products import Products
from twf.tracking import mode

EXTRAS = ("", "report", "pipeline", "remotes")  # what `make setup` installs for users

DRIVER = Path("/proc/driver/nvidia")  # where Linux shows that NVIDIA's driver is loaded

State = Literal["ok", "warning", "wrong"]
COLOURS: dict[State, str] = {"ok": "green", "warning": "yellow", "wrong": "red"}


class Check(NamedTuple):
    """What was found of one thing, and the remedy where something is wrong with it."""

    name: str
    state: State
    said: str
    remedy: str = ""


def examine(params: Params) -> Iterator[Check]:
    """All checks, one after the other."""
    checks: dict[str, Callable[[], Iterator[Check]]] = {
        "code": code,
        "packages": packages,
        "gpus": gpus,
        "inputs": lambda: made(params),
        "tracking": lambda: tracking(params),
    }
    for name, check in checks.items():
        try:
            yield from check()
        except UserError as error:  # its message has the remedy
            yield Check(name, "wrong", str(error))


def show(checks: Iterable[Check]) -> bool:
    """Print each check as it is done; whether nothing is wrong."""
    console = Console(soft_wrap=True, highlight=False)
    well = True
    for check in checks:
        said = f"{check.name:<11}{check.said}"
        if check.remedy:
            said += f". To mend it: {check.remedy}"
        console.print(Text.assemble((f"{check.state:<8}", COLOURS[check.state]), said))
        well &= check.state != "wrong"
    return well


def code() -> Iterator[Check]:
    """Whether the code that runs is that of this folder, and of which commit."""
    if (other := checkout.other_code(Path.cwd())) is not None:
        used, remedy = other
        yield Check(
            "code", "wrong", f"{Path.cwd()} has code of its own, and this is {used}", remedy
        )
        return
    words = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8")
        said, found = (done.stdout or done.stderr).strip().partition("\n")[0], done.returncode == 0
    except FileNotFoundError:
        said, found = "there is no git", False
    if found:
        yield Check("code", "ok", f"{Path(twf.__file__).parent}, commit {said}")
    else:
        remedy = "work in a clone of your own (git clone)"
        if "dubious ownership" in said:
            trusted = shlex.quote(str(Path.cwd()))
            remedy += f", or git config --global --add safe.directory {trusted}"
        said = f"Snakemake works, but records will name no commit: {said}"
        yield Check("code", "warning", said, remedy)


def packages() -> Iterator[Check]:
    """Python and the packages, held to what `pyproject.toml` asks."""
    python, bounds = platform.python_version(), metadata.metadata("twf")["Requires-Python"]
    if not SpecifierSet(bounds).contains(python, prereleases=True):
        remedy = "rm -r .venv && make PYTHON=A_FITTING_PYTHON setup"
        yield Check("python", "wrong", f"{python}, wanted {bounds}", remedy)
    missing, unfit = [], []
    for requirement in map(Requirement, metadata.requires("twf") or []):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in EXTRAS):
            try:
                version = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                missing.append(requirement.name)
                continue
            if not requirement.specifier.contains(version, prereleases=True):
                unfit.append(f"{requirement.name} is {version}, wanted {requirement.specifier}")
    remedy = "make --always-make setup"
    if unfit:
        yield Check("packages", "wrong", "; ".join(unfit), remedy)
    if missing:
        message = f"without {', '.join(missing)}: enough to train, not for all of the pipeline"
        yield Check("packages", "warning", message, remedy)
    if not unfit and not missing:
        yield Check("packages", "ok", f"Python {python}, torch {metadata.version('torch')}")


def gpus() -> Iterator[Check]:
    """The GPUs that jobs use, and whether PyTorch is built for them."""
    torch = metadata.version("torch")
    usable = visible.gpus()
    for gpu in usable:
        yield Check("gpus", "ok", f"{gpu.name} ({gpu.id}), torch {torch}")
    if not usable and torch.endswith("+cpu") and DRIVER.exists():
        remedy = "rm -r .venv && UV_TORCH_BACKEND=auto make setup"
        yield Check("gpus", "wrong", f"torch {torch} is built for CPUs only", remedy)
    elif not usable:
        yield Check("gpus", "ok", f"none shown; jobs train on {cpu.cores()} CPU cores")


def made(params: Params) -> Iterator[Check]:
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
