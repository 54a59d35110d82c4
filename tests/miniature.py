"""A checkout of the project's pipeline with a demo study of seconds, and processes in it."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import yaml
from support import KEYS, PROJECT, has_key

from twf import files

REPORT = str(files.report_file("demo"))
FINETUNE, ER, TWF = (f"split-digits.{name}.s0" for name in ("finetune", "er.16", "twf.16"))
CACHES = shutil.ignore_patterns("__pycache__")
MORE = (".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore", "src/twf/files.py")
FILES = ("Snakefile", "workflow", "profiles", "results/printed.csv", "dvc.yaml", *MORE)
TIMEOUT = 240.0  # seconds for one thing to happen, on a machine that others use too

# Processes: started, waited for, found, and killed as power loss would


def environment(**variables: str) -> dict[str, str]:
    """Ours and `KEYS`, with this Python's commands and those in /usr/sbin on the PATH.

    What selects among the suite's tests selects none of those that a test starts.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
    ours = {"PATH": path, "TWF_TRACKING": "off", "DVC_NO_ANALYTICS": "1", "PYTEST_ADDOPTS": ""}
    return KEYS | os.environ | ours | variables


def start(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """Start a command of this environment in `folder`, in a process group of its own."""
    return subprocess.Popen(
        words,
        cwd=folder,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str], limit: float = TIMEOUT) -> tuple[int, str]:
    """Its exit status and what it said, once it has ended; never a key."""
    said, _ = process.communicate(timeout=limit)
    assert not has_key(said)
    return process.returncode, said


def call(folder: Path, *words: str, fails: bool = False) -> str:
    """Run a command of this environment in `folder`; its output, both streams."""
    status, said = ended(start(folder, *words), limit=1800)
    assert (status != 0) == fails, said
    return said


def until(found: Callable[[], Any], what: str) -> Any:
    """What `found` gives once it gives something."""
    end = time.monotonic() + TIMEOUT
    while not (answer := found()):
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.01)
    return answer


def inside(folder: Path) -> dict[int, str]:
    """The processes that work in `folder`, whoever started them: number and command."""
    processes = list(psutil.process_iter(["cwd", "cmdline"]))
    return {
        process.pid: " ".join(process.info["cmdline"] or [])
        for process in processes  # `cwd` is None for another user's
        if Path(process.info["cwd"] or "/").is_relative_to(folder)
    }


def the_process(folder: Path, command: str) -> int:
    """The one process in `folder` whose command holds `command`.

    A leading `/` leaves out the shell that waits for it. While it starts another process there
    are two, since the new one has the command of the old until it becomes another program.
    """

    def one() -> int | None:
        found = [number for number, words in inside(folder).items() if command in words]
        return found[0] if len(found) == 1 else None

    return int(until(one, f"one process of {command}"))


def cut_power(folder: Path, process: subprocess.Popen[str]) -> None:
    """Kill a process with its group, and all else that works in its folder."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for number in inside(folder):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(number, signal.SIGKILL)
    until(lambda: not inside(folder), "the end of all processes")


def free_port() -> int:
    """A port of this machine that no server listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# The checkout


def miniature() -> dict[str, Any]:
    """The project's params.yaml with a demo study of seconds."""
    values = yaml.safe_load((PROJECT / "params.yaml").read_text())
    del values["gpu_slots"]  # its default
    for name in ("letters", "textures"):
        values["datasets"][name] |= {"train_per_class": 4, "test_per_class": 2}
        values["sources"][name]["pretraining"]["epochs"] = 1
    values["benchmarks"]["split-digits"] |= {"epochs": 1, "batch_size": 64, "buffers": [16]}
    demo = values["studies"]["demo"]
    main, dissimilar = (demo["experiments"][name] for name in ("main", "dissimilar"))
    main |= {"methods": ["finetune", "er", "twf"], "seeds": [0], "buffers": [16]}
    dissimilar |= {"methods": ["twf"], "buffers": [16]}
    demo["experiments"] = {"main": main, "dissimilar": dissimilar}
    return values


def catchable() -> dict[str, Any]:
    """The miniature without its second source, and with runs that can be caught."""
    values = miniature()
    del values["studies"]["demo"]["experiments"]["dissimilar"]
    values["benchmarks"]["split-digits"]["epochs"] = 5
    return values


def checkout(folder: Path, values: dict[str, Any] | None = None) -> None:
    """Make `folder` such a checkout, committed, with nothing made yet."""
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, folder / name, symlinks=True, ignore=CACHES)
        else:
            shutil.copy2(PROJECT / name, folder / name)
    (folder / "params.yaml").write_text(yaml.safe_dump(values or miniature(), sort_keys=False))
    call(folder, "git", "init", "--quiet")
    call(folder, "git", "config", "user.name", "x")
    call(folder, "git", "config", "user.email", "x@example.org")
    commit(folder)


def commit(folder: Path) -> None:
    """Commit all to git."""
    call(folder, "git", "add", "--all")
    call(folder, "git", "commit", "--quiet", "--message", "all")


def copied(folder: Path, place: Path) -> Path:
    """A copy of `folder` in `place`, with its modification times."""
    return Path(shutil.copytree(folder, place / "project", symlinks=True))


def change_params(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the values of a project's params.yaml."""
    path = folder / "params.yaml"
    values = yaml.safe_load(path.read_text())
    change(values)
    path.write_text(yaml.safe_dump(values, sort_keys=False))


def change_twf(folder: Path, **hyperparameters: float) -> None:
    """Change TwF's hyperparameters on Split Digits."""

    def change(values: dict[str, Any]) -> None:
        values["benchmarks"]["split-digits"]["methods"]["twf"].update(hyperparameters)

    change_params(folder, change)


def idle(folder: Path, target: str = REPORT) -> bool:
    """Whether Snakemake finds nothing to do."""
    return "Nothing to be done" in call(folder, "snakemake", target, "--dry-run")


def jobs(folder: Path, *words: str) -> dict[str, int]:
    """What Snakemake would do: how many jobs of each rule."""
    said = call(folder, "snakemake", *words, "--cores", "2", "--dry-run", "--quiet", "rules")
    return {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", said, flags=re.M)}


def outputs(folder: Path) -> dict[str, int]:
    """When each of the pipeline's outputs was last written, in nanoseconds."""
    patterns = ("data/*", "checkpoints/*", "results/demo/**/*")
    made = [path for pattern in patterns for path in folder.glob(pattern)]
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in made if p.is_file()}


def written(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """The outputs that are new, or were written again."""
    return {name for name, time in after.items() if before.get(name) != time}
