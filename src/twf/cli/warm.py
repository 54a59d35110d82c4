"""Short runs without the seconds that Python, PyTorch and Weights & Biases take to start.

The demo's runs train for seconds, and so would their start-up last. A server imports everything
once and waits; a `twf run` that finds it (`TWF_WARM` is the path of its socket) hands over its
words, folder, environment and output streams, and a fork of the server does the work. Each run
keeps a process, a log and an output of its own. Where there is no server, `twf run` starts by
itself as ever. For CPUs alone: a fork cannot use CUDA.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

VARIABLE = "TWF_WARM"


def start(path: Path) -> subprocess.Popen[bytes]:
    """Start a server that lives as long as this process, and let `twf run` find it."""
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


def serve(path: Path) -> None:
    """Fork for each client that connects to `path`, until standard input ends."""
    import pandas  # noqa: F401 - wandb's tables ask for it
    import torch
    import wandb  # noqa: F401

    import twf.jobs.run  # noqa: F401

    torch.set_num_threads(1)  # threads would not survive a fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a fork: it tells its client
    with socket.socket(socket.AF_UNIX) as listener:
        os.fchmod(listener.fileno(), 0o600)  # who may connect could have anything done in our name
        listener.bind(str(path))
        listener.listen()
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _work(client)
            client.close()
    path.unlink(missing_ok=True)


def _work(client: socket.socket) -> None:
    """In a fork: do what the client asks for, and send it the exit status as one byte."""
    from twf.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(client, 1 << 20, 2)
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
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):  # they may be files on a full disk
            sys.stdout.flush()
            sys.stderr.flush()
        client.send(bytes([status]))
        os._exit(status)


def hand_over() -> int | None:
    """Let a server do this process's work; its exit status, or None where no server is there."""
    path = os.environ.pop(VARIABLE, None)
    if path is None:
        return None
    request = {"words": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
            socket.send_fds(server, [json.dumps(request).encode()], [1, 2])
        except OSError:
            return None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: server.send(bytes([number])))
        answer = server.recv(1)  # taken up again after a signal
    if not answer:
        print("error: the process of this run was killed", file=sys.stderr)
        return 1
    return answer[0]


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
