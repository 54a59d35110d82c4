"""A miniature study on a real Slurm: jobs fail, are told to stop and are requeued, and go on."""

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from miniature import (
    ER,
    FINETUNE,
    TIMEOUT,
    TWF,
    call,
    catchable,
    checkout,
    environment,
    free_port,
    the_process,
    until,
)
from miniature import REPORT as TARGET

from twf.files import log_file, record_file, run_plan, runs_file, state_file
from twf.jobs.again import compared, read_row

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scontrol")
PATH = environment()["PATH"]
MISSING = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} on the PATH"),
]

# One node, with devices in the place of GPUs: nothing opens them.
CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SwitchType=switch/none
MessageTimeout=60
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=localhost CPUs=4 RealMemory=64000 Gres=gpu:4
PartitionName=test Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""
DEVICES = ("null", "zero", "full", "random")


def ask(*words: str, fails: bool = False) -> str:
    """What one of Slurm's programs says; where it `fails`, as while Slurm starts, that too."""
    return subprocess.run(words, check=not fails, capture_output=True, text=True).stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for Slurm's files and keys, near the root: a socket's path has 107 characters."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Slurm of one node for this test."""
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir()
    filled = CONFIGURATION.format(
        folder=folder, user=getpass.getuser(), controller=free_port(), node=free_port()
    )
    (folder / "slurm.conf").write_text(filled)
    devices = (f"NodeName=localhost Name=gpu File=/dev/{device}\n" for device in DEVICES)
    (folder / "gres.conf").write_text("".join(devices))
    (folder / "munge.key").touch(mode=0o600)
    (folder / "munge.key").write_bytes(os.urandom(128))
    # in a job the executor drops all SLURM_ variables, this one too
    step = folder / "bin/srun"
    program = shutil.which("srun")
    step.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {program} "$@"\n')
    step.chmod(0o755)
    # Where Slurm leaves one question unanswered, the executor asks sacct instead; hearing that
    # there is no accounting, it would never look at its jobs again, so the queue answers
    accounting = folder / "bin/sacct"
    accounting.write_text("#!/bin/sh\nexec squeue --states=all --noheader --format='%i|%T'\n")
    accounting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin{os.pathsep}{PATH}")
    monkeypatch.setenv("SLURM_CONF", f"{folder}/slurm.conf")
    munge = [f"--{name}={folder}/munge.{name.split('-')[0]}" for name in ("socket", "key-file")]
    munge += [f"--{name}-file={folder}/munged.{name}" for name in ("pid", "log", "seed")]
    with (folder / "said.log").open("wb") as said, contextlib.ExitStack() as servers:
        for words in (
            # force: the folder is closed to other users
            ["munged", "--foreground", "--force", *munge],
            ["slurmctld", "-D"],
            ["slurmd", "-D", "-N", "localhost"],
        ):
            server = subprocess.Popen(words, stdout=said, stderr=said)
            servers.callback(server.wait, TIMEOUT)
            servers.callback(server.terminate)
            until((folder / "munge.socket").exists, f"munge; see {folder}/said.log")
        idle = ["sinfo", "--noheader", "--format=%T"]
        until(lambda: ask(*idle, fails=True) == "idle\n", f"Slurm; see {folder}/said.log")
        try:
            yield
        finally:
            ask("scancel", "--user", getpass.getuser())
            until(lambda: not ask("squeue", "--noheader"), "the end of all jobs")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    checkout(folder, catchable())
    return folder


def process_of(project: Path, run: str) -> int:
    """The process that does a run in `project`, once it has saved a state."""
    until((project / state_file("demo", run)).exists, f"a state of {run}")
    return the_process(project, f"/twf run {run_plan('demo', run)}")


def job_of(run: str) -> str:
    """The identifier of Slurm's job for a run; the executor has rule and wildcards as comment."""
    lines = ask("squeue", "--noheader", "--format=%i %k").splitlines()
    (job,) = [line.split()[0] for line in lines if line.endswith(f"_{run}")]
    return job


@pytest.mark.usefixtures("cluster")
def test_a_study_on_slurm_ends_in_the_records_of_a_local_one(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWF_TRACKING", "off")
    monkeypatch.setenv("TWF_SAVE_EVERY", "0")
    words = ["snakemake", "--profile", "workflow/profiles/slurm", TARGET]
    words += ["--slurm-status-command", "squeue"]  # as there is no accounting
    words += ["--slurm-init-seconds-before-status-checks", "2"]
    words += ["--seconds-between-status-checks", "2"]
    with (project / "said.log").open("wb") as log:
        snakemake = subprocess.Popen(words, cwd=project, stdout=log, stderr=log)
    try:
        # er fails; finetune is told to stop as by control groups: its step's first process alone
        os.kill(process_of(project, ER), signal.SIGKILL)
        os.kill(psutil.Process(process_of(project, FINETUNE)).ppid(), signal.SIGTERM)
        process_of(project, TWF)
        preempted = job_of(TWF)
        ask("scontrol", "requeue", preempted)
        state = ["squeue", "--noheader", "--format=%T", "--job", preempted]
        until(lambda: ask(*state) == "PENDING\n", "the job back in the queue")
        ask("scontrol", "update", f"JobId={preempted}", "StartTime=now")  # not in two minutes
        assert snakemake.wait(3 * TIMEOUT) == 0, (project / "said.log").read_text()
    finally:
        snakemake.send_signal(signal.SIGINT)  # SIGTERM would wait for its jobs
        print((project / "said.log").read_text(), ask("squeue", "--long"))  # shown if this fails
        snakemake.wait(TIMEOUT)

    said = (project / "said.log").read_text()
    assert said.count("Trying to restart job") == 2
    job = ask("scontrol", "show", "job", preempted)
    assert "Restarts=1" in job
    assert "gres:gpu:1" in job
    for run in (FINETUNE, ER, TWF):
        assert "resumed" in (project / log_file("demo", run)).read_text()
    assert "Nothing to be done" in call(project, "snakemake", "--cores", "2", TARGET)

    local = tmp_path / "local"
    checkout(local, catchable())
    call(local, "snakemake", "--cores", "2", str(runs_file("demo")))
    for run in (FINETUNE, ER, TWF):
        rows = [read_row(p / record_file("demo", run), run) for p in (project, local)]
        assert "every accuracy and every loss" in next(compared(*rows))
