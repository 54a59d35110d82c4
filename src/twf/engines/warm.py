"""Short jobs without the seconds that Python, PyTorch and Weights & Biases take to start.

Snakemake starts a server (`twf.cli.warm`) that has imported everything and waits. A `twf` that
finds it (`TWF_WARM` is the path of its socket) hands over its arguments, folder, environment and
output streams, and a fork of the server does the work. Each job keeps a process, a log and
an output of its own; without a server it starts by itself. The server ends when the code changes.
For CPUs alone: a fork cannot use CUDA.

Measured on two cores, in turn: the demo's run of Finetune takes 6.4 s by itself and 3.0 s with it,
an earlier demo of 88 runs 748 s without it and 476 s with it. To start, it takes 6 s of a core: a
call for one run takes 20 s of processor time with it and 13 s without.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from twf.engines import environment
from twf.gpus import cpu

VARIABLE = "TWF_WARM"
READY = b"\1"  # a server's first byte, which an ended one does not send
LENGTH = 8  # bytes that say how long a request is, and bring its streams


def start(path: Path) -> subprocess.Popen[bytes] | None:
    """Start a server that lives as long as this process, and let `twf` find it.

    None where a fork may fail: each job starts by itself.
    """
    if not cpu.may_fork():
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    # its streams are not ours: who reads ours would wait for the server to end
    with path.with_suffix(".log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "twf.cli.warm", str(path)],
            stdin=subprocess.PIPE,  # which ends with this process, however it ends
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.environ[VARIABLE] = str(path)  # a long absolute path would be no address
    return server


def hand_over() -> int | None:
    """Let a server do this process's work; its exit status, or None where no server is there."""
    path = os.environ.pop(VARIABLE, None)
    if path is None:
        return None
    request = {"words": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}
    message = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
            if not server.recv(1):  # it has ended, as the code is not what it has imported
                return None
            socket.send_fds(server, [len(message).to_bytes(LENGTH, "little")], [1, 2])
            server.sendall(message)
        except OSError:
            return None
        environment.stop_with_parent()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: server.send(bytes([number])))
        answer = server.recv(1)  # taken up again after a signal
    if not answer:
        print("error: the process of this command was killed", file=sys.stderr)
        return 1
    return answer[0]
