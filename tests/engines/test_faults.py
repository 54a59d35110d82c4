"""Faults, docs/trouble.md's among them: what a user sees, what then mends it, and what is lost.

After each fault and its remedy the records are those of a study that nothing happened to.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from miniature import TWF as RUN
from miniature import call, change_params, copied, jobs
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

pytestmark = pytest.mark.slow

AsMade = Callable[[Path], None]


@pytest.fixture
def whole(made: Path, tmp_path: Path) -> Path:
    """A copy of `made`, with its modification times."""
    return copied(made, tmp_path)


@pytest.fixture
def project(whole: Path) -> Path:
    """The same with one run to do, and to collect."""
    (whole / RECORD).unlink()
    (whole / RUNS).unlink()
    return whole


@pytest.fixture
def as_made(made: Path, lasting: Callable[[dict[str, Any]], dict[str, Any]]) -> AsMade:
    """`as_made(folder)`: its records say what those of `made` say, and its inputs are the same."""

    def row(path: Path) -> dict[str, Any]:
        (found,) = record.read(path).to_pylist()
        return lasting(found)

    def hold(folder: Path) -> None:
        for path in (made / RECORD).parent.iterdir():
            assert row(folder / path.relative_to(made)) == row(path), path.name
        for path in (*made.glob("data/*.safetensors"), *made.glob("checkpoints/*.safetensors")):
            found, whole = load_file(folder / path.relative_to(made)), load_file(path)
            assert found.keys() == whole.keys(), path.name
            assert all((found[name] == whole[name]).all() for name in whole), path.name
        assert not list(folder.glob("**/*.partial"))

    return hold


def going_on(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A call that does the run, once the run has saved a state."""
    process = start(folder, *(words or MAKE), TWF_SAVE_EVERY="0")
    until((folder / STATE).exists, "a saved state")
    return process


def job(folder: Path) -> int:
    """The process that does the run for Snakemake."""
    return the_process(folder, f"/twf run {files.run_plan('demo', RUN)}")


def damage(path: Path, at: bytes | None = None) -> None:
    """Turn a bit in the middle, or of `at`, as a disk may: size and modification time stay."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else content.index(at)] ^= 0x10
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_killed_job_is_done_again_from_its_saved_state(project: Path, as_made: AsMade) -> None:
    snakemake = going_on(project)
    os.kill(job(project), signal.SIGKILL)
    status, said = ended(snakemake)
    assert status == 0
    assert "died with <Signals.SIGKILL: 9>" in said and "Trying to restart job 0." in said
    assert "resumed" in (project / LOG).read_text()
    as_made(project)


def test_jobs_of_a_killed_snakemake_save_and_the_next_goes_on(
    project: Path, as_made: AsMade
) -> None:
    snakemake = going_on(project)
    snakemake.kill()
    until(lambda: not inside(project), "the end of its jobs")
    assert "stopped and saved" in (project / LOG).read_text()
    assert "Directory cannot be locked" in call(project, *MAKE, fails=True)
    call(project, "snakemake", "--unlock")
    call(project, *MAKE)
    assert "resumed" in (project / LOG).read_text()
    as_made(project)


@pytest.mark.parametrize("tell", [os.kill, os.killpg], ids=["Snakemake alone", "all"])
def test_an_interruption_saves_and_says_how_to_go_on(
    project: Path, as_made: AsMade, tell: Callable[[int, int], None]
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    snakemake = going_on(project)
    tell(snakemake.pid, signal.SIGINT)
    status, said = ended(snakemake)
    assert status != 0 and "the same command goes on from there" in said
    assert "RuleException" not in said and "WorkflowError" not in said
    assert "stopped and saved" in (project / LOG).read_text()
    call(project, *MAKE)
    assert "resumed" in (project / LOG).read_text()
    as_made(project)


def test_after_dvc_was_killed_snakemake_goes_on_and_the_next_dvc_finds_it_done(
    project: Path, as_made: AsMade
) -> None:
    dvc = going_on(project, "dvc", "repro", "runs@demo")
    snakemake = the_process(project, f"/snakemake {RUNS}")
    os.kill(snakemake, signal.SIGSTOP)  # so that it is still at work when DVC is called again
    dvc.kill()
    dvc.wait()
    said = call(project, "dvc", "repro", "runs@demo", fails=True)
    assert "had been killed. Auto removed it from the lock file." in said
    assert "Directory cannot be locked" in said and "failed to reproduce 'runs@demo'" in said
    os.kill(snakemake, signal.SIGCONT)
    until(lambda: not inside(project), "the end of Snakemake")
    call(project, "dvc", "repro", "runs@demo")
    as_made(project)
    assert "up to date" in call(project, "dvc", "status", "--with-deps", "runs@demo")


@pytest.fixture(scope="session")
def interrupted(made: Path, prepared) -> Path:
    """A copy of `made` in which power was lost in the middle of a run."""

    def make(folder: Path) -> None:
        copied(made, folder.parent)
        (folder / RECORD).unlink()
        (folder / RUNS).unlink()
        cut_power(folder, going_on(folder))

    return prepared("interrupted", make)


@pytest.fixture
def dark(interrupted: Path, tmp_path: Path) -> Path:
    """A copy of `interrupted` for one test, which Snakemake takes for the folder it locked."""
    folder = copied(interrupted, tmp_path)
    for lock in (folder / ".snakemake/locks").iterdir():
        lock.write_text(lock.read_text().replace(str(interrupted), str(folder)))
    return folder


def test_after_power_was_lost_the_next_call_goes_on(dark: Path, as_made: AsMade) -> None:
    assert not (dark / RECORD).exists()
    said = call(dark, *MAKE, fails=True)
    assert "likely caused by a kill signal or a power loss" in said
    call(dark, "snakemake", "--unlock")
    call(dark, *MAKE)
    assert "resumed" in (dark / LOG).read_text()
    as_made(dark)


def test_a_damaged_state_is_not_used(dark: Path, as_made: AsMade) -> None:
    damage(dark / STATE)
    call(dark, "snakemake", "--unlock")
    call(dark, *MAKE)
    assert f"{STATE} is damaged" in (dark / LOG).read_text()
    as_made(dark)


def remount(folder: Path, option: str) -> None:
    call(folder.parent, "mount", "-o", f"remount,{option}", str(folder))


@pytest.fixture
def on_small_disk(project: Path, small_disk: Path) -> Path:
    """The project on a disk of its own, of 40 MiB."""
    remount(small_disk, "size=40m")
    return Path(shutil.copytree(project, small_disk, dirs_exist_ok=True))


def fill(folder: Path) -> Path:
    """Fill the disk to the last byte; the file that does it."""
    path = folder / "filler"
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    for size in (2**20, 2**12, 1):
        try:
            while True:
                os.write(file, b"x" * size)
        except OSError:
            continue
    os.close(file)
    return path


def test_a_disk_that_fills_up_is_named_and_costs_nothing_saved(
    on_small_disk: Path, as_made: AsMade
) -> None:
    snakemake = going_on(on_small_disk)
    filler = fill(on_small_disk)
    status, said = ended(snakemake)
    assert status == 1
    assert "No space left on device" in said
    assert not (on_small_disk / RECORD).exists()
    said = call(on_small_disk, "twf", "run", "demo", RUN, fails=True)
    assert "No space left on device" in said and "Traceback" not in said
    filler.unlink()
    call(on_small_disk, *MAKE)
    assert "resumed" in (on_small_disk / LOG).read_text()
    as_made(on_small_disk)


def test_a_read_only_folder_is_named_and_left_as_it_is(
    on_small_disk: Path, as_made: AsMade
) -> None:
    remount(on_small_disk, "ro")
    for words in (MAKE, ("dvc", "repro", "runs@demo")):
        assert "Read-only file system" in call(on_small_disk, *words, fails=True)
    said = call(on_small_disk, "twf", "run", "demo", RUN, fails=True)
    assert "Read-only file system" in said and "Traceback" not in said
    remount(on_small_disk, "rw")
    call(on_small_disk, *MAKE)
    as_made(on_small_disk)


def test_a_lock_left_behind_is_told_or_taken_over(project: Path, as_made: AsMade) -> None:
    """Snakemake's, DVC's with the number of another process, and ours, which need nothing."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    ours = project / STATE.parent.with_name(f"{RUN}.lock")
    ours.parent.mkdir(parents=True, exist_ok=True)
    ours.write_text(f"process {dead.pid} on {os.uname().nodename}")
    locks = project / ".snakemake/locks"
    locks.mkdir(exist_ok=True)
    (locks / "0.output.lock").write_text(f"{RECORD}\n")
    assert "Directory cannot be locked" in call(project, *MAKE, fails=True)
    call(project, "snakemake", "--unlock")
    call(project, *MAKE)
    assert not ours.exists()

    theirs = project / ".dvc/tmp/rwlock"
    held = {str(project / RUNS): {"pid": os.getpid(), "cmd": "dvc repro"}}
    theirs.write_text(json.dumps({"write": held}))
    said = call(project, "dvc", "repro", "runs@demo", fails=True)
    assert "is busy, it is being blocked by" in said and "you can manually remove" in said
    theirs.unlink()
    call(project, "dvc", "repro", "runs@demo")
    as_made(project)


def test_a_damaged_checkpoint_is_not_trained_from(project: Path, as_made: AsMade) -> None:
    damage(project / CHECKPOINT)
    said = call(project, *MAKE, fails=True)
    assert f"error: {CHECKPOINT}" in said
    (project / CHECKPOINT).unlink()
    assert jobs(project, RECORD) == {"pretrain": 1, "run": 1, "total": 2}  # and no other run
    call(project, *MAKE)
    as_made(project)


def test_a_damaged_record_is_not_collected_and_made_again(whole: Path, as_made: AsMade) -> None:
    damage(whole / RECORD, at=RUN.encode())
    said = call(whole, "twf", "collect", "demo", fails=True)
    assert RECORD in said
    call(whole, *MAKE)
    as_made(whole)


def test_two_studies_at_once_are_both_done(project: Path, as_made: AsMade) -> None:
    change_params(project, lambda v: v["studies"].update(other=v["studies"]["demo"]))
    snakemake = going_on(project)
    first = job(project)
    os.kill(first, signal.SIGSTOP)  # so that the second begins and ends meanwhile
    other = str(files.record_file("other", RUN))
    call(project, "snakemake", other, "--cores", "2")
    os.kill(first, signal.SIGCONT)
    assert ended(snakemake)[0] == 0
    as_made(project)
    (one,), (two,) = (record.read(project / path).to_pylist() for path in (RECORD, other))
    assert one["accuracy_class_il"] == two["accuracy_class_il"]


def test_a_study_started_twice_is_done_once(project: Path, as_made: AsMade) -> None:
    snakemake = going_on(project)
    first = job(project)
    os.kill(first, signal.SIGSTOP)
    assert "Directory cannot be locked" in call(project, *MAKE, fails=True)
    said = call(project, "twf", "run", "demo", RUN, fails=True)
    assert f"process {first} on {os.uname().nodename}" in said
    os.kill(first, signal.SIGCONT)
    assert ended(snakemake)[0] == 0
    as_made(project)
