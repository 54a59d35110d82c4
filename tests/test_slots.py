"""Jobs share GPUs by slots, with real processes; and see no GPU but their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from twf import devices, machine, slots
from twf.errors import UserError
from twf.machine import Gpu
from twf.training import provenance

A, B = Gpu("GPU-a", "A GPU"), Gpu("GPU-b", "A GPU")
JOB = """
import sys
from twf import slots
from twf.machine import Gpu
slots.POLL = 0.05
gpus = [Gpu(name, "A GPU") for name in sys.argv[2:]]
print(slots.take(gpus, int(sys.argv[1])).id, flush=True)
sys.stdin.read()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """`start(slots, *gpus)`: a job that takes a slot, prints its GPU, and ends with its input."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    jobs = []

    def job(slots: int, *gpus: Gpu) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", JOB, str(slots), *(gpu.id for gpu in gpus)]
        pipe = subprocess.PIPE
        jobs.append(subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return jobs[-1]

    yield job
    for process in jobs:
        process.kill()
        process.communicate()


def own(job: subprocess.Popen[str]) -> str:
    """The GPU that a job has, once it has one."""
    assert job.stdout is not None
    return job.stdout.readline().strip()


def waits(job: subprocess.Popen[str]) -> bool:
    """Whether a job says that it waits."""
    assert job.stderr is not None
    return job.stderr.readline().startswith("waiting for a GPU: 1 of your jobs on each of 1")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, None])
def test_a_slot_is_free_again_however_its_job_ends(start: Start, number: int | None) -> None:
    first = start(1, A)
    assert own(first) == A.id
    second = start(1, A)
    assert waits(second)
    if number is None:
        first.communicate()  # its input ends, and so does it
    else:
        first.send_signal(number)
    assert own(second) == A.id


def test_jobs_spread_over_gpus_and_then_share_them(start: Start) -> None:
    jobs, seen = [], []
    for count in range(1, 5):
        jobs.append(start(2, A, B))
        seen.append(own(jobs[-1]))
        assert max(Counter(seen).values()) == (count + 1) // 2
    jobs[seen.index(B.id)].communicate()
    assert own(start(2, A, B)) == B.id


def test_jobs_that_start_together_do_not_crowd(start: Start) -> None:
    assert Counter(own(job) for job in [start(2, A, B) for _ in range(4)]) == {A.id: 2, B.id: 2}


def test_a_process_keeps_the_slot_it_has(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots, "_held", [])
    assert slots.take([A, B], 1) == slots.take([A, B], 1) == A
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_not_ones_own_is_refused(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots, "_held", [])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"twf-gpus-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is not a folder of yours"):
        slots.take([A], 1)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with two GPUs that PyTorch can use, no slot taken."""
    monkeypatch.setattr(machine, "gpus", lambda: [A, B])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots, "_held", [])
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # restored when the test ends


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_job_sees_its_own_gpu_alone(two_gpus, start, name) -> None:
    other = start(1, A, B)
    assert own(other) == A.id
    assert devices.device_for(name, threads=1) == torch.device("cuda")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == B.id


def test_a_deterministic_job_says_so_to_pytorch(two_gpus, monkeypatch) -> None:
    told = []
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.setattr(torch, "use_deterministic_algorithms", told.append)
    devices.device_for("cpu", threads=1, deterministic=True)
    devices.device_for("cuda", threads=1)
    assert told == [] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ""
    devices.device_for("cuda", threads=1, deterministic=True)
    assert told == [True] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_a_job_on_the_cpu_takes_no_slot(two_gpus) -> None:
    assert devices.device_for("cpu", threads=1) == torch.device("cpu")
    assert slots._held == []


def test_a_gpu_that_pytorch_cannot_use_is_told(two_gpus, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="there is a A GPU, but this PyTorch .* cannot use it"):
        devices.device_for("auto", threads=1)


def test_the_provenance_says_which_gpu_it_was(monkeypatch) -> None:
    monkeypatch.setattr(provenance, "device_name", lambda device: "A GPU")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", B.id)
    assert provenance.environment(torch.device("cuda"))["gpu"] == B.id
    assert provenance.environment(torch.device("cpu"))["gpu"] is None
