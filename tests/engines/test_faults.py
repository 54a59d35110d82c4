"""Faults, docs/trouble.md's among them: what a user sees, what then mends it, and what is lost.

After each fault and its remedy the records are those of a study that nothing happened to.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from miniature import TWF as RUN
from miniature import call, cut_power, ended, idle, inside, jobs, start, the_process, until
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
    """`as_made(folder)`: its records say what those of `made` say, and its network is the same."""

    def rows(folder: Path) -> dict[str, dict[str, Any]]:
        paths = (folder / RECORD).parent.iterdir()
        return {path.name: lasting(record.read(path).to_pylist()[0]) for path in paths}

    def hold(folder: Path) -> None:
        assert rows(folder) == rows(made)
        ours, whole = load_file(folder / CHECKPOINT), load_file(made / CHECKPOINT)
        assert ours.keys() == whole.keys()
        assert all((ours[name] == whole[name]).all() for name in whole)
        assert not list(folder.glob("**/*.partial"))

    return hold


def going_on(folder: Path, *words: str, tracking: str = "off") -> subprocess.Popen[str]:
    """A call that does the run, once the run has saved a state."""
    process = start(folder, *(words or MAKE), TWF_SAVE_EVERY="0", TWF_TRACKING=tracking)
    until((folder / STATE).exists, "a saved state")
    return process


def damage(path: Path, at: bytes) -> None:
    """Turn a bit of `at`, as a disk may: size and modification time stay."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[content.index(at)] ^= 0x10
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_killed_job_is_done_again_from_its_saved_state(undone: Path, as_made: AsMade) -> None:
    snakemake = going_on(undone)
    os.kill(the_process(undone, f"/twf run {files.run_plan('demo', RUN)}"), signal.SIGKILL)
    status, said = ended(snakemake)
    assert status == 0
    assert "Trying to restart job 0." in said
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
    snakemake = going_on(undone, tracking="offline")
    tell(snakemake.pid, signal.SIGINT)
    status, said = ended(snakemake)
    assert status != 0 and "the same command goes on from there" in said
    assert "RuleException" not in said and "WorkflowError" not in said
    log = (undone / LOG).read_text()
    assert "stopped and saved" in log and "tracking stopped" not in log
    call(undone, *MAKE)
    assert "resumed" in (undone / LOG).read_text()
    as_made(undone)


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
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds 40 MiB and no more: a file system of its own."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(folder)]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only a user who may mount has a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_named_and_costs_nothing_saved(
    undone: Path, small_disk: Path, as_made: AsMade
) -> None:
    folder = Path(shutil.copytree(undone, small_disk, dirs_exist_ok=True))
    snakemake = going_on(folder)
    filler = folder / "filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=64k"], stderr=subprocess.DEVNULL)
    status, said = ended(snakemake)
    assert status == 1 and "No space left on device" in said
    said = call(folder, "twf", "run", "demo", RUN, fails=True)
    assert "No space left on device" in said and "Traceback" not in said
    assert not (folder / RECORD).exists()
    filler.unlink()
    call(folder, *MAKE)
    assert "resumed" in (folder / LOG).read_text()
    as_made(folder)


def test_a_damaged_checkpoint_or_record_is_named_not_used_and_made_again(
    project: Path, as_made: AsMade
) -> None:
    damage(project / RECORD, at=RUN.encode())
    assert RECORD in call(project, "twf", "collect", "demo", fails=True)
    damage(project / CHECKPOINT, at=(project / CHECKPOINT).read_bytes()[50_000:50_016])
    assert f"error: {CHECKPOINT}" in call(project, *MAKE, fails=True)
    (project / CHECKPOINT).unlink()
    assert jobs(project, RECORD) == {"pretrain": 1, "run": 1, "total": 2}  # and no other run
    call(project, *MAKE)
    as_made(project)
