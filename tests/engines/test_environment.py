"""Signals of a step of Slurm, and the code of another folder."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import PROJECT, Twf, mistake

from twf.checkout import refuse_other_code
from twf.errors import UserError

COMMAND = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("ready", flush=True)
signal.pause()
"""
# as Snakemake does: a handler of its own, and a thread that waits for the command
STEP = f"""
import concurrent.futures, signal, subprocess, sys
from twf.engines import environment
environment.pass_on_sigterm()
signal.signal(signal.SIGTERM, lambda *_: print("own handler", flush=True))
with concurrent.futures.ThreadPoolExecutor() as pool:
    command = pool.submit(lambda: subprocess.Popen([sys.executable, "-c", {COMMAND!r}]))
    sys.exit(pool.submit(command.result().wait).result())
"""


def test_a_step_of_slurm_passes_sigterm_on_and_keeps_its_handler() -> None:
    step = subprocess.Popen(
        [sys.executable, "-c", STEP],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"SLURM_STEP_ID": "0"},
    )
    try:
        assert step.stdout is not None and step.stdout.readline() == "ready\n"
        step.terminate()
        assert step.stdout.readline() == "own handler\n"
        assert step.wait(30) == 143
    finally:
        if step.poll() is None:
            os.killpg(step.pid, signal.SIGKILL)


def test_a_job_ends_whose_snakemake_ended_while_it_started() -> None:
    words = "import time, twf.engines.environment as e; e.stop_with_parent(0); time.sleep(60)"
    assert subprocess.run([sys.executable, "-c", words]).returncode == -signal.SIGTERM


# The code of another folder


def test_the_code_of_another_checkout_is_refused_and_pythonpath_named_where_it_brings_it(
    tmp_path: Path, twf: Twf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to the code is the code."""
    (tmp_path / "src/twf").mkdir(parents=True)  # code of its own; this process has the project's
    (tmp_path / "src/twf/__init__.py").touch()
    shutil.copy2(PROJECT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert f"this is {PROJECT}/src/twf" in mistake(twf("plan demo"))
    snakemake = ["snakemake", "--snakefile", str(PROJECT / "Snakefile"), "-n"]
    done = subprocess.run([sys.executable, "-m", *snakemake], capture_output=True, text=True)
    assert done.returncode != 0 and "code of its own" in " ".join(done.stdout.split())
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{PROJECT / 'src'}")
    with pytest.raises(UserError, match="unset PYTHONPATH.*make setup"):
        refuse_other_code()
    shutil.rmtree(tmp_path / "src")
    (tmp_path / "src").symlink_to(PROJECT / "src")
    refuse_other_code()
