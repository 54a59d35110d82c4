"""What the engines need of the process and the folder that they run in, and of jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import until

from twf.engines.environment import keep_copies_here, refuse_unfit_folder
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


def test_a_process_is_told_to_stop_when_its_parent_is_killed(tmp_path: Path) -> None:
    child = (
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


# An object storage

COPIES = Path(".snakemake/storage/s3/bucket/twf")


@pytest.mark.usefixtures("here")
def test_what_a_command_writes_is_the_copy_and_the_other_way_round() -> None:
    keep_copies_here(COPIES)
    keep_copies_here(COPIES)  # as each Snakemake does
    Path("data").mkdir()
    Path("data/made").touch()
    (COPIES / "data/retrieved").touch()
    assert (COPIES / "data/made").exists() and Path("data/retrieved").exists()


@pytest.mark.parametrize("copies", [COPIES, COPIES.parent], ids=["folder", "bucket"])
def test_a_folder_that_is_moved_stays_its_own(
    here: Path, monkeypatch: pytest.MonkeyPatch, copies: Path
) -> None:
    keep_copies_here(copies)
    assert copies.resolve() == here
    monkeypatch.chdir(here.rename(here.with_name("moved")))
    keep_copies_here(copies)
    assert copies.resolve() == Path.cwd()


@pytest.mark.usefixtures("here")
def test_copies_that_are_there_already_are_named_and_left() -> None:
    COPIES.mkdir(parents=True)
    (COPIES / "made").touch()
    with pytest.raises(UserError, match=f"{COPIES} .*delete it"):
        keep_copies_here(COPIES)
    assert (COPIES / "made").exists()
