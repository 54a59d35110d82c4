"""A step of a Slurm job tells its command that the job is to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

COMMAND = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("ready", flush=True)
signal.pause()
"""
# as Snakemake does: a handler of its own, and a thread that waits for the command
STEP = f"""
import concurrent.futures, signal, subprocess, sys
from twf.engines import slurm
slurm.pass_on_sigterm()
signal.signal(signal.SIGTERM, lambda *_: print("own handler", flush=True))
with concurrent.futures.ThreadPoolExecutor() as pool:
    command = pool.submit(lambda: subprocess.Popen([sys.executable, "-c", {COMMAND!r}]))
    sys.exit(pool.submit(command.result().wait).result())
"""


@pytest.fixture
def step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """A process whose command waits, as Slurm started it or not."""
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    if request.param:
        monkeypatch.setenv("SLURM_STEP_ID", "0")
    process = subprocess.Popen(
        [sys.executable, "-c", STEP], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("step", [True], indirect=True, ids=["slurm"])
def test_a_step_passes_sigterm_on_and_keeps_its_handler(step: subprocess.Popen[str]) -> None:
    step.terminate()
    assert step.communicate(timeout=30)[0] == "own handler\n"
    assert step.returncode == 143


@pytest.mark.parametrize("step", [False], indirect=True, ids=["elsewhere"])
def test_elsewhere_sigterm_stays_where_it_was_sent(step: subprocess.Popen[str]) -> None:
    step.terminate()
    assert step.stdout is not None
    assert step.stdout.readline() == "own handler\n"
    with pytest.raises(subprocess.TimeoutExpired):
        step.wait(1)
