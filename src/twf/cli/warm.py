"""The server of `twf.engines.warm`: it imports everything once, and forks for each command."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path

import pandas  # noqa: F401 - wandb's tables ask for it
import torch
import wandb.sdk.launch.inputs.internal  # noqa: F401 - each of its runs asks for it, half a second

import twf
import twf.jobs.run
import twf.results.report
from twf.cli import commands
from twf.engines.warm import LENGTH, READY
from twf.jobs.code import LOOP, code_hash


def serve(path: Path) -> None:
    """Fork for each client that connects to `path`, until standard input ends or the code changes.

    A record would else name a commit whose code has not run.
    """
    imported = _code()
    torch.set_num_threads(1)  # threads would not survive a fork
    code_hash(LOOP)  # of what was imported here, and not again in each fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a fork: it tells its client
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.umask(0o177)  # who may connect could have anything done in our name
        listener.bind(str(path))
        os.umask(before)
        listener.listen()
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            client, _ = listener.accept()
            if _code() != imported:
                client.close()
                break
            client.send(READY)
            if os.fork() == 0:
                listener.close()
                _work(client)
            client.close()
    path.unlink(missing_ok=True)


def _code() -> dict[str, tuple[int, int]]:
    """The time and size of each file of the package."""
    stats = {str(path): path.stat() for path in Path(twf.__file__).parent.rglob("*.py")}
    return {path: (at.st_mtime_ns, at.st_size) for path, at in stats.items()}


def _work(client: socket.socket) -> None:
    """In a fork: do what the client asks for, and send it the exit status as one byte."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, streams, _, _ = socket.recv_fds(client, LENGTH, 2, socket.MSG_WAITALL)
    message = b""
    while part := client.recv(int.from_bytes(length, "little") - len(message)):
        message += part
    if not message or len(message) < int.from_bytes(length, "little"):
        os._exit(1)  # the client is gone, or works by itself
    request = json.loads(message)
    for stream, number in zip(streams, (1, 2), strict=True):
        os.dup2(stream, number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["words"]

    def follow_client() -> None:
        while number := client.recv(1):
            os.kill(os.getpid(), number[0])  # a signal that the client was sent
        os._exit(1)  # it is gone

    threading.Thread(target=follow_client, daemon=True).start()
    status = 1
    try:
        commands.run()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()  # sys.excepthook is wandb's, which prints it twice
    finally:
        with contextlib.suppress(OSError):  # they may be files on a full disk
            sys.stdout.flush()
            sys.stderr.flush()
        client.send(bytes([status]))
        os._exit(status)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
