"""What the engines need of the process and the folder that they run in, and of jobs."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Twf, mistake
from processes import until
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


# A home that cannot be written

OF_A_USER = {"XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "WANDB_DATA_DIR"}
OF_A_USER |= {"MPLCONFIGDIR", "HOME", "LOGNAME", "USER", "LNAME", "USERNAME"}


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a user with no name and no home."""
    kept = {name: value for name, value in os.environ.items() if name not in OF_A_USER}
    monkeypatch.setattr(os, "environ", kept)
    return kept


def test_tools_write_into_the_project_what_the_home_cannot_hold(
    here: Path, nobody: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that can be written is left alone, and a missing one replaced."""
    whole = {"HOME": str(here.parent), "LOGNAME": "me"}
    nobody.update(whole)
    assert replace_home() == [] and nobody.items() >= whole.items()

    file = here.with_name("home")
    file.touch()  # below which root cannot write either
    nobody.update(HOME=str(file), MPLCONFIGDIR=str(here))
    assert replace_home() == ["XDG_CACHE_HOME", "WANDB_DATA_DIR"]
    assert nobody["HOME"] == str(file), "settings are read there"
    for variable in ("XDG_CACHE_HOME", "WANDB_DATA_DIR"):
        assert Path(nobody.pop(variable)).is_relative_to(here / ".snakemake")
    assert nobody["MPLCONFIGDIR"] == str(here)

    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    del nobody["HOME"], nobody["LOGNAME"]
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert replace_home() == ["HOME", "LOGNAME"]
    assert Path.home().is_relative_to(here) and getpass.getuser()
    assert list(here.iterdir()) == [], "nothing is made before it is used"


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


def test_the_code_of_another_checkout_is_refused_and_pythonpath_named_where_it_brings_it(
    another_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to the code is the code."""
    with pytest.raises(UserError, match=f"{another_checkout}.*{PROJECT}.*make setup"):
        refuse_other_code()
    monkeypatch.setenv("PYTHONPATH", f"{another_checkout}{os.pathsep}{PROJECT / 'src'}")
    with pytest.raises(UserError, match="unset PYTHONPATH") as refused:
        refuse_other_code()
    assert "make setup" not in str(refused.value)
    shutil.rmtree(another_checkout / "src")
    (another_checkout / "src").symlink_to(PROJECT / "src")
    refuse_other_code()


@pytest.mark.parametrize("words", ["plan demo", "run demo split-digits.er.50.s0", "--help"])
def test_no_command_runs_another_checkouts_code(
    another_checkout: Path, twf: Twf, words: str
) -> None:
    said = mistake(twf(words))
    assert f"{another_checkout} has code of its own, and this is {PROJECT}/src/twf" in said
    doctors = [line for line in twf("doctor").out.splitlines() if "code" in line.split()[1]]
    assert [line.split()[0] for line in doctors] == ["wrong"]


@pytest.mark.parametrize(
    "words", [["snakemake", "--snakefile", str(PROJECT / "Snakefile"), "-n"], ["benchmarks"]]
)
def test_neither_snakemake_nor_benchmarks_run_another_checkouts_code(
    another_checkout: Path, words: list[str]
) -> None:
    shutil.copytree(PROJECT / "benchmarks", another_checkout / "benchmarks")
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    assert done.returncode != 0
    assert "has code of its own" in " ".join((done.stdout + done.stderr).split())
