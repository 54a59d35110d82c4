"""Processes in a folder: started, waited for, found, and killed as power loss would."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT = 240.0  # seconds for one thing to happen, on a machine that others use too


def environment(**variables: str) -> dict[str, str]:
    """Ours, with the commands of this Python's environment and those in /usr/sbin on the PATH.

    What selects among the suite's tests selects none of those that a test starts.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
    ours = {"PATH": path, "TWF_TRACKING": "off", "DVC_NO_ANALYTICS": "1", "PYTEST_ADDOPTS": ""}
    return os.environ | ours | variables


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


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit status and what it said, once it has ended."""
    said, _ = process.communicate(timeout=TIMEOUT)
    return process.returncode, said


def until(found: Callable[[], Any], what: str) -> Any:
    """What `found` gives once it gives something."""
    end = time.monotonic() + TIMEOUT
    while not (answer := found()):
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.01)
    return answer


def inside(folder: Path) -> dict[int, str]:
    """The processes that work in `folder`, whoever started them: number and command."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if (process / "cwd").readlink().is_relative_to(folder):
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(process.name)] = words.decode()
    return found


def parent(process: int) -> int:
    """The process that started it."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


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
