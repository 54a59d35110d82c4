"""A warm start gives the same run as a cold one, and is missed by nobody where it is not there."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import until

from twf import files
from twf.engines import warm
from twf.results import record
from twf.study.params import Params

RUN = "split-target.er.16.s0"
TWF = [sys.executable, "-m", "twf"]
SOCKET = Path("warm.socket")

Process = subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One for all tests of this file, in a folder of its own: it takes seconds to start."""
    folder = tmp_path_factory.mktemp("warm")
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setenv(warm.VARIABLE, "")  # restored when the tests end
        before = os.umask(0)  # which would let everybody read and write
        process = warm.start(SOCKET)
        os.umask(before)
        assert process is not None
        until(SOCKET.exists, "the server")
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def server(_server: Process, tiny_inputs: Params, monkeypatch: pytest.MonkeyPatch) -> Process:
    """The server, which commands find in the miniature project that the test is in."""
    monkeypatch.setenv(warm.VARIABLE, str(socket_of(_server)))
    return _server


def socket_of(server: Process) -> Path:
    """An address as short as it must be, wherever the tests' folders lie."""
    return Path(f"/proc/{server.pid}/cwd") / SOCKET


@pytest.mark.slow
def test_a_warm_run_leaves_the_record_and_the_log_of_a_cold_one(server) -> None:
    """As does a run by itself, where the server that it was told of is not there."""
    columns = ("accuracy_class_il", "accuracy_task_il", "digest", "status")
    found = []
    for address in (os.environ[warm.VARIABLE], "nowhere.socket"):
        words = [*TWF, "run", "tiny", RUN]
        environment = os.environ | {warm.VARIABLE: address}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert f"{RUN}: 4/4" in done.stderr
        (row,) = record.read(files.record_file("tiny", RUN)).to_pylist()
        losses = [entry["loss"] for entry in row["history"]]
        found.append([row[column] for column in columns] + losses)
        files.record_file("tiny", RUN).unlink()
    assert found[0] == found[1]


def test_only_its_owner_may_connect(server) -> None:
    """Who does has anything done in the owner's name."""
    assert stat.S_IMODE(socket_of(server).stat().st_mode) == 0o600


def test_where_a_fork_may_fail_there_is_no_server(macos, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv(warm.VARIABLE, raising=False)
    assert warm.start(tmp_path / SOCKET) is None
    assert warm.VARIABLE not in os.environ


def test_a_mistake_is_reported_as_without_it(server) -> None:
    done = subprocess.run([*TWF, "run", "tiny", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "'nothing'" in done.stderr


def test_an_environment_of_a_megabyte_is_handed_over_whole(server) -> None:
    """One read of a socket is not a whole message."""
    large = {f"LARGE_{i}": "x" * 100_000 for i in range(11)}
    words = [*TWF, "run", "tiny", RUN]
    done = subprocess.run(words, env=os.environ | large, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert files.record_file("tiny", RUN).exists()
    log = socket_of(server).with_suffix(".log").read_text(encoding="utf-8")
    assert "Traceback" not in log


@pytest.fixture
def client(server) -> Process:
    """A run at work that would not end by itself; it writes to the file `log`."""
    text = files.PARAMS.read_text()
    files.PARAMS.write_text(text.replace("    epochs: 2\n", "    epochs: 100000\n", 1))
    with Path("log").open("w") as stream:
        process = subprocess.Popen([*TWF, "run", "tiny", RUN], stdout=stream, stderr=stream)
    until(lambda: "after" in Path("log").read_text(), "the run's first epochs")
    return process


def test_the_work_of_a_killed_client_ends_too(server, client) -> None:
    """Else a second try would work beside the first."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    assert children.read_text().split()
    client.kill()
    client.wait()
    until(lambda: not children.read_text().split(), "the end of the work")
    assert not files.record_file("tiny", RUN).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_client_told_to_stop_lets_its_run_be_saved(client, number) -> None:
    client.send_signal(number)
    assert client.wait(60) == 143
    assert files.state_file("tiny", RUN).exists()


@pytest.mark.slow
def test_the_server_ends_with_its_owner(tiny_inputs: Params) -> None:
    code = "import time; from pathlib import Path; from twf.engines import warm\n"
    code += f"print(warm.start(Path('{SOCKET}')).pid, flush=True); time.sleep(600)"
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    status = Path(f"/proc/{int(owner.stdout.readline())}/stat")
    until(SOCKET.exists, "the server")
    owner.kill()
    owner.wait()
    until(lambda: not SOCKET.exists(), "the server's last act")
    until(lambda: not status.exists() or status.read_text().split()[2] == "Z", "its end")


CHANGED = """
from importlib import import_module
from pathlib import Path
warm = import_module("twf.cli.warm")  # the package's own `warm` is that of the engines
states = iter([{}, {"a.py": (1, 1)}])
warm._code = lambda: next(states)
warm.serve(Path("warm.socket"))
"""


@pytest.mark.slow
def test_a_server_ends_where_the_code_has_changed(tiny_inputs: Params) -> None:
    """What it has imported is not what a record would name: commands work by themselves."""
    server = subprocess.Popen([sys.executable, "-c", CHANGED], stdin=subprocess.PIPE)
    until(SOCKET.exists, "the server")
    words, environment = [*TWF, "run", "tiny", RUN], os.environ | {warm.VARIABLE: str(SOCKET)}
    subprocess.run(words, env=environment, check=True, capture_output=True)
    assert files.record_file("tiny", RUN).exists()
    assert server.wait(60) == 0 and not SOCKET.exists()
