"""What the engines need of the process and the folder that they run in, and of jobs."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Twf, mistake
from processes import until
from project import PROJECT

from twf.checkout import refuse_other_code
from twf.engines.environment import refuse_unfit_folder, replace_home
from twf.errors import UserError
from twf.upkeep import doctor


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


# A home that cannot be written, another folder, a machine's own habits of pip

NO_HOME = {"XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "WANDB_DATA_DIR", "MPLCONFIGDIR"}


@pytest.fixture
def without_home(here: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a user whose home is a file, so that root too cannot write below it."""
    file = here.with_name("home")
    file.touch()
    kept = {name: value for name, value in os.environ.items() if name not in NO_HOME}
    return kept | {"HOME": str(file)}


def test_tools_write_into_the_project_what_the_home_cannot_hold(
    here: Path, without_home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", without_home | {"MPLCONFIGDIR": str(here)})
    assert replace_home() == ["XDG_CACHE_HOME", "WANDB_DATA_DIR"]
    assert without_home["HOME"] == os.environ["HOME"], "settings are read there"
    for variable in ("XDG_CACHE_HOME", "WANDB_DATA_DIR"):
        assert Path(os.environ[variable]).is_relative_to(here / ".snakemake")
    assert os.environ["MPLCONFIGDIR"] == str(here)
    assert list(here.iterdir()) == [], "nothing is made before it is used"


def test_a_user_whom_the_system_does_not_know_gets_a_name_and_a_home(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    names = {"HOME", "LOGNAME", "USER", "LNAME", "USERNAME"} | NO_HOME
    kept = {name: value for name, value in os.environ.items() if name not in names}
    monkeypatch.setattr(os, "environ", kept)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert replace_home() == ["HOME", "LOGNAME"]
    assert Path.home().is_relative_to(here) and getpass.getuser()


def test_a_home_that_can_be_written_is_left_alone(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in NO_HOME}
    monkeypatch.setattr(os, "environ", kept | {"HOME": str(tmp_path), "LOGNAME": "me"})
    before = dict(os.environ)
    assert replace_home() == [] and os.environ == before
    assert list(tmp_path.iterdir()) == [here]


def plan(folder: Path, *words: str, **changes: Any) -> str:
    """What a dry run of Snakemake says in `folder`, all in one line."""
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--snakefile"]
    command += [str(PROJECT / "Snakefile"), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, **changes)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    return " ".join(said.split())


def test_snakemake_works_with_a_home_that_cannot_be_written(
    here: Path, without_home: dict[str, str]
) -> None:
    for name in ("params.yaml", "results/printed.csv"):
        (here / name).parent.mkdir(exist_ok=True)
        shutil.copy2(PROJECT / name, here / name)
    said = plan(here, "data/digits.safetensors", env=without_home)
    assert "data 1" in said and "dry-run" in said


def test_make_gives_its_tools_a_home_and_a_name_where_there_is_none(here: Path) -> None:
    shutil.copy2(PROJECT / "Makefile", here)
    (here / "show.mk").write_text('include Makefile\nshow:\n\t@echo "$$HOME:$$LOGNAME"\n')
    kept = {n: v for n, v in os.environ.items() if n not in ("HOME", "LOGNAME", "USER")}

    def shown(**more: str) -> list[str]:
        words = ["make", "--no-print-directory", "--file", "show.mk", "show"]
        done = subprocess.run(words, env=kept | more, capture_output=True, text=True, check=True)
        return done.stdout.strip().split(":")

    home, name = shown()
    assert home == str(here / ".snakemake/home") and name
    assert shown(HOME="/a", LOGNAME="b") == ["/a", "b"]


FAKE_UV = """
import os, pathlib, sys
def main():
    said = f"{os.environ['UV_NO_CACHE']} {' '.join(sys.argv[1:])}"
    pathlib.Path("uv-was-called").write_text(said)
"""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder that pip finds a package of the name uv in, which notes how it was called."""
    info = "uv-1.0.dist-info"
    content = {
        "uv.py": FAKE_UV,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: uv\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nuv = uv:main\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(tmp_path / "uv-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in content.items():
            wheel.writestr(name, text)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("how", ["variable", "file"])
def test_setup_works_where_pip_installs_for_the_user_and_the_home_cannot_be_written(
    here: Path, wheels: Path, without_home: dict[str, str], how: str
) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(PROJECT / name, here)
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}
    if how == "variable":
        pip["PIP_USER"] = "1"
    else:
        (wheels / "pip.conf").write_text("[global]\nuser = true\n")
        pip["PIP_CONFIG_FILE"] = str(wheels / "pip.conf")
    words = ["make", f"PYTHON={sys.executable}", "setup"]
    done = subprocess.run(words, env=without_home | pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (here / "uv-was-called").read_text().startswith("true pip install ")


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


def test_pythonpath_is_named_where_it_brings_another_checkouts_code(
    another_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new environment would not help there."""
    monkeypatch.setenv("PYTHONPATH", f"{another_checkout}{os.pathsep}{PROJECT / 'src'}")
    with pytest.raises(UserError, match="unset PYTHONPATH") as refused:
        refuse_other_code()
    assert "make setup" not in str(refused.value)


def test_a_link_to_the_code_is_the_code(here: Path) -> None:
    (here / "src").symlink_to(PROJECT / "src")
    refuse_other_code()


@pytest.mark.parametrize("words", ["plan demo", "run demo split-digits.er.50.s0", "--help"])
def test_no_command_runs_another_checkouts_code(
    another_checkout: Path, twf: Twf, words: str
) -> None:
    said = mistake(twf(words))
    assert f"{another_checkout} has code of its own, and this is {PROJECT}/src/twf" in said
    assert "make setup" in said


def test_snakemake_runs_no_other_checkouts_code(another_checkout: Path) -> None:
    words = [sys.executable, "-m", "snakemake", "--dry-run"]
    words += ["--snakefile", str(PROJECT / "Snakefile")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert f"{another_checkout} has code of its own" in said and "make setup" in said


def test_benchmarks_of_another_checkout_do_not_measure_this_code(another_checkout: Path) -> None:
    shutil.copytree(PROJECT / "benchmarks", another_checkout / "benchmarks")
    words = [sys.executable, "-m", "benchmarks", "steps"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "code of its own" in done.stderr


def test_doctor_says_whose_code_runs(another_checkout: Path, twf: Twf) -> None:
    said = twf("doctor")
    assert said.code == 1
    (line,) = [line for line in said.out.splitlines() if "code" in line.split()[1]]
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
    (check,) = doctor.code()
    assert check.state == "warning"
    assert "not a git repository" in check.said and "git clone" in check.remedy


def test_doctor_says_how_git_comes_to_trust_the_folder_of_another_user(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet"], check=True)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    (check,) = doctor.code()
    assert check.state == "warning" and f"safe.directory {here}" in check.remedy
