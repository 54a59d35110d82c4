"""What the engines need of the process and the folder that they run in, and of jobs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Twf, mistake
from project import PROJECT

from twf.checkout import refuse_other_code
from twf.engines.environment import refuse_unfit_folder, replace_home
from twf.errors import UserError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_folder_whose_name_snakemake_would_fill_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_unfit_folder()  # not this one
    (here / "a{study}b").mkdir()
    monkeypatch.chdir(here / "a{study}b")
    with pytest.raises(UserError, match="rename that folder"):
        refuse_unfit_folder()


def test_tools_write_into_the_project_what_the_home_cannot_hold(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that can be written is left alone."""
    kept = {"HOME": str(here.parent), "LOGNAME": "me", "MPLCONFIGDIR": str(here)}
    monkeypatch.setattr(os, "environ", kept)
    assert replace_home() == []
    here.with_name("home").touch()  # below which root cannot write either
    kept["HOME"] = str(here.with_name("home"))
    assert replace_home() == ["XDG_CACHE_HOME", "WANDB_DATA_DIR"]
    assert Path(kept["WANDB_DATA_DIR"]).is_relative_to(here / ".snakemake")
    assert list(here.iterdir()) == [], "nothing is made before it is used"


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


# The code of another folder


@pytest.fixture
def another_checkout(here: Path) -> Path:
    """A checkout with code of its own; this process has the project's. The test is in it."""
    (here / "src/twf").mkdir(parents=True)
    (here / "src/twf/__init__.py").touch()
    shutil.copy2(PROJECT / "params.yaml", here)
    return here


def test_the_code_of_another_checkout_is_refused_and_pythonpath_named_where_it_brings_it(
    another_checkout: Path, twf: Twf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to the code is the code."""
    assert f"this is {PROJECT}/src/twf" in mistake(twf("plan demo"))
    snakemake = ["snakemake", "--snakefile", str(PROJECT / "Snakefile"), "-n"]
    done = subprocess.run([sys.executable, "-m", *snakemake], capture_output=True, text=True)
    assert done.returncode != 0 and "code of its own" in " ".join(done.stdout.split())
    monkeypatch.setenv("PYTHONPATH", f"{another_checkout}{os.pathsep}{PROJECT / 'src'}")
    with pytest.raises(UserError, match="unset PYTHONPATH"):
        refuse_other_code()
    shutil.rmtree(another_checkout / "src")
    (another_checkout / "src").symlink_to(PROJECT / "src")
    refuse_other_code()
