"""A warm start gives the same run as a cold one, and is missed by nobody where it is not there."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from twf import files
from twf.engines import warm
from twf.results import record
from twf.study.params import Params

RUN = "split-target.twf.16.s0"
TWF = [sys.executable, "-m", "twf"]


def wait_for(condition, seconds: float = 60.0) -> None:
    """Wait until `condition()` is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def server(tiny_inputs: Params, monkeypatch: pytest.MonkeyPatch):
    """A server beside the miniature project, its owner this test."""
    monkeypatch.setenv(warm.VARIABLE, "")  # restored when the test ends
    path = Path("warm.socket")
    before = os.umask(0)  # which would let everybody read and write
    process = warm.start(path)
    os.umask(before)
    wait_for(path.exists)
    yield process
    process.kill()
    process.wait()


def test_a_warm_run_leaves_the_record_and_the_log_of_a_cold_one(server) -> None:
    columns = ("accuracy_class_il", "accuracy_task_il", "digest", "status")
    found = []
    for environment in (os.environ, {k: v for k, v in os.environ.items() if k != warm.VARIABLE}):
        done = subprocess.run(
            [*TWF, "run", "tiny", RUN], env=environment, capture_output=True, text=True, check=True
        )
        assert f"{RUN}: 4/4" in done.stderr
        row = record.read(files.record_file("tiny", RUN)).to_pylist()[0]
        losses = [entry["loss"] for entry in row["history"]]
        found.append([row[column] for column in columns] + losses)
        files.record_file("tiny", RUN).unlink()
    assert found[0] == found[1]


def test_only_its_owner_may_connect(server) -> None:
    """Who does has anything done in the owner's name."""
    assert stat.S_IMODE(Path("warm.socket").stat().st_mode) == 0o600


def test_a_mistake_is_told_as_ever(server) -> None:
    done = subprocess.run([*TWF, "run", "tiny", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: study tiny has no run 'nothing'; `twf plan tiny` lists its runs\n"


def test_without_a_server_a_run_starts_by_itself(tiny_inputs: Params, monkeypatch) -> None:
    monkeypatch.setenv(warm.VARIABLE, "nowhere.socket")
    subprocess.run([*TWF, "run", "tiny", RUN], check=True, capture_output=True)
    assert files.record_file("tiny", RUN).exists()


def test_the_work_of_a_killed_client_ends_too(server, tiny_inputs: Params) -> None:
    """Else a second try would work beside the first."""
    text = files.PARAMS.read_text()
    files.PARAMS.write_text(text.replace("    epochs: 2\n", "    epochs: 100000\n", 1))
    log = Path("log")
    with log.open("w") as stream:
        client = subprocess.Popen([*TWF, "run", "tiny", RUN], stdout=stream, stderr=stream)
    wait_for(lambda: "after" in log.read_text())
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    assert children.read_text().split()
    client.send_signal(signal.SIGKILL)
    client.wait()
    wait_for(lambda: not children.read_text().split())
    assert not files.record_file("tiny", RUN).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_client_told_to_stop_lets_its_run_be_saved(server, tiny_inputs: Params, number) -> None:
    text = files.PARAMS.read_text()
    files.PARAMS.write_text(text.replace("    epochs: 2\n", "    epochs: 100000\n", 1))
    log = Path("log")
    with log.open("w") as stream:
        client = subprocess.Popen([*TWF, "run", "tiny", RUN], stdout=stream, stderr=stream)
    wait_for(lambda: "after" in log.read_text())
    client.send_signal(number)
    assert client.wait(60) == 143
    assert log.read_text().endswith("stopped and saved: the same command goes on from here\n")
    assert files.state_file("tiny", RUN).exists()


def test_the_server_ends_with_its_owner(tiny_inputs: Params) -> None:
    code = "import sys, time; from pathlib import Path; from twf.engines import warm\n"
    code += "print(warm.start(Path('warm.socket')).pid, flush=True); time.sleep(600)"
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    wait_for(Path("warm.socket").exists)
    owner.kill()
    owner.wait()
    wait_for(lambda: not Path("warm.socket").exists())

    def gone() -> bool:
        status = Path(f"/proc/{pid}/stat")
        return not status.exists() or status.read_text().split()[2] == "Z"

    wait_for(gone)
