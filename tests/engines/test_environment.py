"""What the engines need of the process and the folder that they run in, and of jobs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import until
from project import PROJECT

from twf.engines.environment import refuse_other_code, refuse_unfit_folder
from twf.errors import UserError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        (".dvc/tmp/exps/tmpab12", "leave --temp and --queue"),
        (".dvc/tmp/exps/standalone/tmpab12", "in the clone"),
        ("a{study}b", "rename that folder"),
        ("}", "rename that folder"),
    ],
)
def test_a_folder_in_which_an_engine_would_go_wrong_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    """A copy that DVC made, and one whose braces Snakemake would fill."""
    refuse_unfit_folder()  # not this one
    (here / name).mkdir(parents=True)
    monkeypatch.chdir(here / name)
    with pytest.raises(UserError, match=remedy):
        refuse_unfit_folder()


# Signals


@pytest.mark.parametrize("only_linux", [True, False])
def test_a_process_is_told_to_stop_when_its_parent_is_killed(
    tmp_path: Path, only_linux: bool
) -> None:
    """Also where the C library has nothing for it, as on macOS."""
    child = "" if only_linux else "import ctypes; ctypes.CDLL = lambda _: object()\n"
    child += (
        "import signal, sys, time; from pathlib import Path; from twf.engines import environment\n"
        "told = lambda *_: (Path('told').touch(), sys.exit())\n"
        "signal.signal(signal.SIGTERM, told); environment.stop_with_parent()\n"
        "Path('ready').touch(); time.sleep(60)"
    )
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    until((tmp_path / "ready").exists, "the child")
    assert not (tmp_path / "told").exists()
    parent.kill()
    parent.wait()
    until((tmp_path / "told").exists, "the signal")


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


@pytest.fixture(params=["slurm", "elsewhere"])
def step(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[str]]:
    """A process whose command waits, as Slurm started it or not."""
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    if request.param == "slurm":
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


def test_a_step_of_slurm_passes_sigterm_on_and_keeps_its_handler(
    step: subprocess.Popen[str],
) -> None:
    """Elsewhere the signal stays where it was sent."""
    step.terminate()
    assert step.stdout is not None
    assert step.stdout.readline() == "own handler\n"
    if "SLURM_STEP_ID" in os.environ:
        assert step.wait(30) == 143
    else:
        with pytest.raises(subprocess.TimeoutExpired):
            step.wait(1)


# The code of another folder


@pytest.fixture
def another_checkout(here: Path) -> Path:
    """A checkout with code of its own; this process has the project's. The test is in it."""
    (here / "src/twf").mkdir(parents=True)
    (here / "src/twf/__init__.py").touch()
    shutil.copy2(PROJECT / "params.yaml", here)
    return here


def test_the_code_of_another_checkout_is_refused(another_checkout: Path) -> None:
    with pytest.raises(UserError, match=f"{another_checkout}.*{PROJECT}.*make setup"):
        refuse_other_code()


def test_a_link_to_the_code_is_the_code(here: Path) -> None:
    (here / "src").symlink_to(PROJECT / "src")
    refuse_other_code()


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "twf", "plan", "demo"],
        ["-m", "twf", "run", "demo", "split-digits.er.50.s0"],
        ["-m", "twf", "--help"],
        ["-m", "snakemake", "--dry-run", "--snakefile", str(PROJECT / "Snakefile")],
    ],
    ids=lambda words: words[1] + words[2],
)
def test_no_command_runs_another_checkouts_code(another_checkout: Path, words: list[str]) -> None:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert f"{another_checkout} has code of its own, and this is {PROJECT}/src/twf" in said
    assert "make setup" in said


def test_benchmarks_of_another_checkout_do_not_measure_this_code(another_checkout: Path) -> None:
    shutil.copytree(PROJECT / "benchmarks", another_checkout / "benchmarks")
    words = [sys.executable, "-m", "benchmarks", "steps"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "code of its own" in done.stderr


def test_doctor_says_whose_code_runs(another_checkout: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "twf", "doctor"], capture_output=True, text=True)
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if "code" in line.split()[1]]
    assert line.startswith("wrong") and "make setup" in line


@pytest.mark.parametrize("made_in", ["elsewhere", "", "here"])
def test_an_environment_that_came_from_another_folder_is_made_anew(
    here: Path, made_in: str
) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(PROJECT / name, here)
    (here / ".venv").mkdir()
    (here / ".venv/installed").write_text(f"{here if made_in == 'here' else made_in}\n")
    make = ["make", "--dry-run", "setup"]
    said = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    assert ("rm -rf .venv" in said) == (made_in != "here")


def test_doctor_says_that_records_will_name_no_commit(here: Path) -> None:
    shutil.copy2(PROJECT / "params.yaml", here)
    done = subprocess.run([sys.executable, "-m", "twf", "doctor"], capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if line.split()[1] == "code"]
    assert line.startswith("warning") and "not a git repository" in line and "git clone" in line
