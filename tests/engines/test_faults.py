"""Faults, docs/trouble.md's among them: what a user sees, what then mends it, and what is lost.

After each fault and its remedy the records are those of a study that nothing happened to.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from miniature import TWF as RUN
from miniature import call, idle, jobs
from processes import cut_power, ended, inside, start, the_process, until
from safetensors.numpy import load_file

from twf import files
from twf.results import record

RECORD = str(files.record_file("demo", RUN))
RUNS = str(files.runs_file("demo"))
STATE = files.state_file("demo", RUN)
LOG = files.log_file("demo", RUN)
CHECKPOINT = str(files.checkpoint_file("letters"))
MAKE = ("snakemake", RECORD, "--cores", "2")
LOCKED = "Directory cannot be locked"

pytestmark = pytest.mark.slow

AsMade = Callable[[Path], None]


@pytest.fixture
def undone(project: Path) -> Path:
    """A copy of `made` with one run to do, and to collect."""
    (project / RECORD).unlink()
    (project / RUNS).unlink()
    return project


@pytest.fixture
def as_made(made: Path, lasting: Callable[[dict[str, Any]], dict[str, Any]]) -> AsMade:
    """`as_made(folder)`: its records say what those of `made` say, and its inputs are the same."""

    def row(path: Path) -> dict[str, Any]:
        (only,) = record.read(path).to_pylist()
        return lasting(only)

    def hold(folder: Path) -> None:
        for path in (made / RECORD).parent.iterdir():
            assert row(folder / path.relative_to(made)) == row(path), path.name
        for path in (*made.glob("data/*.safetensors"), *made.glob("checkpoints/*.safetensors")):
            ours, whole = load_file(folder / path.relative_to(made)), load_file(path)
            assert ours.keys() == whole.keys(), path.name
            assert all((ours[name] == whole[name]).all() for name in whole), path.name
        assert not list(folder.glob("**/*.partial"))

    return hold


def going_on(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A call that does the run, once the run has saved a state."""
    process = start(folder, *(words or MAKE), TWF_SAVE_EVERY="0")
    until((folder / STATE).exists, "a saved state")
    return process


def damage(path: Path, at: bytes | None = None) -> None:
    """Turn a bit in the middle, or of `at`, as a disk may: size and modification time stay."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else content.index(at)] ^= 0x10
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_killed_job_is_done_again_from_its_saved_state(undone: Path, as_made: AsMade) -> None:
    snakemake = going_on(undone)
    os.kill(the_process(undone, f"/twf run {files.run_plan('demo', RUN)}"), signal.SIGKILL)
    status, said = ended(snakemake)
    assert status == 0
    assert "died with <Signals.SIGKILL: 9>" in said and "Trying to restart job 0." in said
    assert "resumed" in (undone / LOG).read_text()
    as_made(undone)


def test_jobs_of_a_killed_snakemake_save_and_the_next_goes_on(
    undone: Path, as_made: AsMade
) -> None:
    snakemake = going_on(undone)
    snakemake.kill()
    until(lambda: not inside(undone), "the end of its jobs")
    assert "stopped and saved" in (undone / LOG).read_text()
    assert LOCKED in call(undone, *MAKE, fails=True)
    call(undone, "snakemake", "--unlock")
    call(undone, *MAKE)
    assert "resumed" in (undone / LOG).read_text()
    as_made(undone)


@pytest.mark.parametrize("tell", [os.kill, os.killpg], ids=["Snakemake alone", "all"])
def test_an_interruption_saves_and_says_how_to_go_on(
    undone: Path, as_made: AsMade, tell: Callable[[int, int], None]
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    snakemake = going_on(undone)
    tell(snakemake.pid, signal.SIGINT)
    status, said = ended(snakemake)
    assert status != 0 and "the same command goes on from there" in said
    assert "RuleException" not in said and "WorkflowError" not in said
    assert "stopped and saved" in (undone / LOG).read_text()
    call(undone, *MAKE)
    assert "resumed" in (undone / LOG).read_text()
    as_made(undone)


def test_after_dvc_was_killed_snakemake_goes_on_and_the_next_dvc_finds_it_done(
    undone: Path, as_made: AsMade
) -> None:
    dvc = going_on(undone, "dvc", "repro", "runs@demo")
    snakemake = the_process(undone, f"/snakemake {RUNS}")
    os.kill(snakemake, signal.SIGSTOP)  # so that it is still at work when DVC is called again
    dvc.kill()
    dvc.wait()
    said = call(undone, "dvc", "repro", "runs@demo", fails=True)
    assert LOCKED in said and "failed to reproduce 'runs@demo'" in said
    os.kill(snakemake, signal.SIGCONT)
    until(lambda: not inside(undone), "the end of Snakemake")
    call(undone, "dvc", "repro", "runs@demo")
    as_made(undone)
    assert "up to date" in call(undone, "dvc", "status", "--with-deps", "runs@demo")


def test_after_power_was_lost_the_next_call_goes_on(project: Path, as_made: AsMade) -> None:
    """What stood in the record's place, here nothing that can be read, is not taken for it."""
    torn = os.urandom(100)
    (project / RECORD).write_bytes(torn)
    assert jobs(project, RECORD) == {"run": 1, "total": 1}
    cut_power(project, going_on(project))
    assert (project / RECORD).read_bytes() == torn
    assert "likely caused by a kill signal or a power loss" in call(project, *MAKE, fails=True)
    call(project, "snakemake", "--unlock")
    call(project, *MAKE, "--touch")
    assert jobs(project, RECORD) == {"run": 1, "total": 1}
    call(project, *MAKE)
    assert "resumed" in (project / LOG).read_text()
    assert idle(project, RECORD)
    as_made(project)


@pytest.fixture
def on_small_disk(undone: Path, small_disk: Path) -> Path:
    """The project on a disk of its own, of 40 MiB."""
    call(small_disk, "mount", "-o", "remount,size=40m", str(small_disk))
    return Path(shutil.copytree(undone, small_disk, dirs_exist_ok=True))


def test_a_disk_that_is_read_only_or_full_is_named_and_costs_nothing_saved(
    on_small_disk: Path, as_made: AsMade
) -> None:
    by_hand = ("twf", "run", "demo", RUN)
    call(on_small_disk, "mount", "-o", "remount,ro", str(on_small_disk))
    for words in (MAKE, ("dvc", "repro", "runs@demo"), by_hand):
        said = call(on_small_disk, *words, fails=True)
        assert "Read-only file system" in said
    assert "Traceback" not in said
    call(on_small_disk, "mount", "-o", "remount,rw", str(on_small_disk))

    snakemake = going_on(on_small_disk)
    filler = on_small_disk / "filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=64k"], stderr=subprocess.DEVNULL)
    status, said = ended(snakemake)
    assert status == 1 and "No space left on device" in said
    assert not (on_small_disk / RECORD).exists()
    said = call(on_small_disk, *by_hand, fails=True)
    assert "No space left on device" in said and "Traceback" not in said
    filler.unlink()
    call(on_small_disk, *MAKE)
    assert "resumed" in (on_small_disk / LOG).read_text()
    as_made(on_small_disk)


def test_a_damaged_checkpoint_or_record_is_named_not_used_and_made_again(
    project: Path, as_made: AsMade
) -> None:
    damage(project / RECORD, at=RUN.encode())
    assert RECORD in call(project, "twf", "collect", "demo", fails=True)
    damage(project / CHECKPOINT)
    assert f"error: {CHECKPOINT}" in call(project, *MAKE, fails=True)
    (project / CHECKPOINT).unlink()
    assert jobs(project, RECORD) == {"pretrain": 1, "run": 1, "total": 2}  # and no other run
    call(project, *MAKE)
    as_made(project)
