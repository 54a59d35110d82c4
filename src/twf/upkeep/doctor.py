"""What is wrong with a set-up, and the remedy. No check changes anything."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.text import Text

import twf
from twf import checkout, files
from twf.engines import environment
from twf.errors import UserError
from twf.forecast import disk
from twf.gpus import cpu, nvidia, visible
from twf.study import expand
from twf.study.params import Params
from twf.study.products import Products

EXTRAS = ("", "report", "pipeline", "remotes")  # what `make setup` installs for users

State = Literal["ok", "warning", "wrong"]
COLOURS: dict[State, str] = {"ok": "green", "warning": "yellow", "wrong": "red"}


class Check(NamedTuple):
    """What was found of one thing, and the remedy where something is wrong with it."""

    name: str
    state: State
    said: str
    remedy: str = ""


def examine(params: Params, study: str) -> Iterator[Check]:
    """All checks, one after the other; `study` is the one for which there is to be room."""
    checks: dict[str, Callable[[], Iterator[Check]]] = {
        "code": code,
        "packages": packages,
        "gpus": gpus,
        "home": home,
        "disk": lambda: space(params, study),
        "clock": clock,
        "inputs": lambda: made(params),
        "dvc": dvc,
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
    """Python and the packages, held to `pyproject.toml`, and to `constraints.txt` if it is here."""
    python, bounds = platform.python_version(), metadata.metadata("twf")["Requires-Python"]
    fits = SpecifierSet(bounds).contains
    if fits(python, prereleases=True):
        yield Check("python", "ok", python)
    else:
        fit = [f"3.{minor}" for minor in range(100) if fits(f"3.{minor}")]
        said = f"{python}, wanted {', '.join(fit[:-1])} or {fit[-1]}"
        remedy = f"another environment: rm -r .venv && make PYTHON=python{fit[-1]} setup"
        yield Check("python", "wrong", said, remedy)
    missing, unfit, count = [], [], 0
    for requirement in map(Requirement, metadata.requires("twf") or []):
        if not _is_of(requirement, *EXTRAS):
            continue
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        count += 1
        if not requirement.specifier.contains(found, prereleases=True):
            unfit.append(f"{requirement.name} is {found}, wanted {requirement.specifier}")
    if unfit:
        yield Check("packages", "wrong", "; ".join(unfit), _install())
    elif missing:
        said = f"without {', '.join(missing)}: enough to train, not for all of the pipeline"
        yield Check("packages", "warning", said, _install())
    elif others := _unlike_constraints():
        said = f"other versions than those of constraints.txt: {', '.join(others)}"
        yield Check("packages", "warning", said, _install())
    else:
        yield Check("packages", "ok", f"torch {metadata.version('torch')}, {count - 1} others")


def _install() -> str:
    """How the environment that is active gets what it is to have."""
    if Path(sys.prefix, "conda-meta").is_dir():
        file = "workflow/envs/environment.yml"
        return f"conda env update --prefix {shlex.quote(sys.prefix)} --file {file}"
    return "make --always-make setup"


def _unlike_constraints() -> list[str]:
    """What is installed in another version than `constraints.txt` has, of what we need."""
    if not (path := Path("constraints.txt")).exists():
        return []  # no checkout: the code came from a wheel
    unlike, needed = [], _needed()
    for pin in map(Requirement, path.read_text(encoding="utf-8").splitlines()):
        if canonicalize_name(pin.name) in needed and _is_of(pin, ""):
            found = metadata.version(pin.name)
            if not pin.specifier.contains(found, prereleases=True):
                unlike.append(f"{pin.name} {found} ({pin.specifier})")
    return unlike


@functools.cache
def _needed() -> set[str]:
    """The installed packages that we need, and those that they need in turn."""
    found: set[str] = set()
    following = seen = {("twf", extra) for extra in EXTRAS}
    while following:
        asked = set()
        for name, extra in following:
            try:
                requirements = map(Requirement, metadata.requires(name) or [])
            except metadata.PackageNotFoundError:
                continue
            found.add(canonicalize_name(name))
            for needed in (each for each in requirements if _is_of(each, extra)):
                asked |= {(needed.name, of) for of in ("", *needed.extras)}
        following = asked - seen
        seen = seen | asked
    return found


def _is_of(requirement: Requirement, *extras: str) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def gpus() -> Iterator[Check]:
    """The GPUs that jobs would use, and whether this PyTorch computes on each."""
    torch, shown = metadata.version("torch"), os.environ.get("CUDA_VISIBLE_DEVICES")
    usable, unusable = visible.look()
    for said in unusable:
        remedy = "the driver (often a restart of the machine does), or CUDA_VISIBLE_DEVICES"
        yield Check("gpus", "warning" if usable else "wrong", said, remedy)
    for gpu in usable:
        said = f"torch {torch} on {gpu.name} {gpu.id}"
        if (refusal := nvidia.compute_error(gpu)) is None:
            yield Check("gpus", "ok", f"{said}: it computes")
        else:
            remedy = "update the driver, or take a PyTorch built for it: UV_TORCH_BACKEND=auto"
            yield Check("gpus", "wrong", f"{said}: {refusal}", remedy)
    if usable or unusable:
        return
    if not nvidia.installed()[0]:
        yield Check("gpus", "ok", f"none; jobs train on {cpu.cores()} CPU cores")
    elif torch.endswith("+cpu"):
        remedy = "rm -r .venv && UV_TORCH_BACKEND=auto make setup"
        yield Check("gpus", "wrong", f"torch {torch} is built for CPUs alone", remedy)
    else:
        said = f"CUDA_VISIBLE_DEVICES is {shown!r}, which shows none: jobs train on CPU cores"
        yield Check("gpus", "warning", said, "unset it, to use them")


def home() -> Iterator[Check]:
    """Whether there is a home that can be written to, and a name for the user."""
    replaced = environment.replace_home()
    if unknown := [variable for variable in ("HOME", "LOGNAME") if variable in replaced]:
        said = f"the system does not know this user, who has no {' and no '.join(unknown)}: "
        said += (
            f"{'`snakemake` and `dvc` end' if 'HOME' in unknown else '`dvc` ends'} in a traceback"
        )
        yield Check("home", "wrong", said, "export HOME=A_FOLDER LOGNAME=A_NAME")
    elif replaced:
        said = f"what is below it cannot be written: {environment.INSTEAD} takes its place"
        remedy = f"make it writable, or name other folders: {', '.join(replaced)}"
        yield Check("home", "warning", said, remedy)
    else:
        yield Check("home", "ok", "caches can be written there")


def space(params: Params, study: str) -> Iterator[Check]:
    """Whether there is room for what remains of a study."""
    disk.check(params, expand(params, study))
    free = disk.size(shutil.disk_usage(Path()).free / disk.MIB)
    yield Check("disk", "ok", f"{free} free, enough for what remains of {study}")


def clock() -> Iterator[Check]:
    """Whether files can be written here at this machine's time,"""
    try:
        with tempfile.NamedTemporaryFile(dir=".", prefix=".doctor-") as file:
            skew = os.stat(file.name).st_mtime - time.time()
    except OSError as error:
        said = f"{Path.cwd()} cannot be written to: {error.strerror}"
        yield Check("folder", "wrong", said, "make it writable, or clone elsewhere")
        return
    if abs(skew) > files.SKEW:
        said = f"files written now have times {skew:+.0f} s from this machine's clock"
        remedy = "set both machines' clocks (NTP): Snakemake goes by modification times"
        yield Check("clock", "wrong", said, remedy)
        return
    yield Check("clock", "ok", "files have this machine's times")


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


def dvc() -> Iterator[Check]:
    """Whether DVC can work in this folder, and its cache holds copies."""
    command = Path(sys.executable).with_name("dvc")
    if not command.exists():
        return  # `packages` tells
    done = subprocess.run(
        [command, "config", "--list"], capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        yield Check("dvc", "wrong", said, "mend .dvc/config: git diff .dvc/config")
        return
    values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    in_git = any((folder / ".git").exists() for folder in (Path.cwd(), *Path.cwd().parents))
    if not in_git and values.get("core.no_scm") != "true":
        said = "no git repository: DVC refuses to work; Snakemake and `twf` do without"
        yield Check("dvc", "warning", said, "git init, or dvc config --local core.no_scm true")
    if (kind := values.get("cache.type", "DVC's default")) == "copy":
        yield Check("dvc cache", "ok", "copies")
    else:
        said = f"cache.type is {kind}: Snakemake would take its links for changed or stale files"
        yield Check("dvc cache", "wrong", said, "dvc config cache.type copy")


def tracking(params: Params) -> Iterator[Check]:
    """Whether Weights & Biases has the key that the mode of tracking needs."""
    from twf.tracking import client, live

    try:
        mode, by = live.decided(params.tracking)
    except UserError as error:
        yield Check("tracking", "wrong", str(error), "unset it")
        return
    if mode == "online" and not client.has_key():
        remedy = "wandb login, or set WANDB_API_KEY; or TWF_TRACKING=offline"
        yield Check("tracking", "wrong", f"online, by {by}, and there is no key", remedy)
    else:
        meaning = f"{mode}: {client.resolve(mode)}" if mode == "auto" else mode
        yield Check("tracking", "ok", f"{meaning}, by {by}")
