"""Jobs see the GPUs that CUDA shows, one each, and share them by slots."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from twf.errors import UserError
from twf.gpus import devices

JOB = """
import subprocess, sys
from twf.gpus import devices
devices.POLL = 0.05
print(devices.take_slot(sys.argv[2:], int(sys.argv[1])), flush=True)
# a process that outlives a job that is killed, as the one of Weights & Biases may
subprocess.Popen(["cat"], stdout=subprocess.DEVNULL)
sys.stdin.read()
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """`start(slots, *gpus)`: a job that takes a slot, prints its GPU, and ends with its input."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    jobs = []

    def job(slots: int, *gpus: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", JOB, str(slots), *gpus]
        pipe = subprocess.PIPE
        jobs.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return jobs[-1]

    yield job
    for process in jobs:
        process.kill()
        process.communicate()


def own(job: subprocess.Popen[str]) -> str:
    """The GPU of a job, once it has one."""
    return job.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_slot_is_free_again_however_its_job_ends(start: Start, number: int) -> None:
    first = start(1, "A")
    assert own(first) == "A"
    second = start(1, "A")
    assert second.stderr.readline().startswith("waiting for a GPU: 1 of your jobs on each of 1")
    first.send_signal(number)
    assert own(second) == "A"


def test_jobs_spread_over_gpus_and_then_share_them(start: Start) -> None:
    assert [own(start(2, "A", "B")) for _ in range(4)] == ["A", "B", "A", "B"]
    together = Counter(own(job) for job in [start(6, "A", "B") for _ in range(4)])
    assert together == {"A": 2, "B": 2}, "jobs that start together do not crowd"


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with two GPUs, no slot taken."""
    monkeypatch.setattr(devices, "gpus", lambda: ["A", "B"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(devices, "_held", [])
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "")  # restored when the test ends


def test_a_job_sees_only_its_own_gpu_and_keeps_it(two_gpus, start: Start) -> None:
    assert own(start(1, "A", "B")) == "A"
    for name in ("auto", "cuda"):
        assert devices.device_for(name, threads=1) == torch.device("cuda")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "B"


def test_a_job_on_the_cpu_takes_no_slot_and_computes_with_its_threads(two_gpus, tmp_path) -> None:
    for threads in (3, 1):
        assert devices.device_for("cpu", threads=threads) == torch.device("cpu")
        assert torch.get_num_threads() == threads
    assert devices._held == [] and not list(tmp_path.iterdir())


def test_a_deterministic_job_says_so_to_pytorch(two_gpus, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", calls.append)
    devices.device_for("cpu", threads=1, deterministic=True)
    devices.device_for("cuda", threads=1)
    assert calls == [] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ""
    devices.device_for("cuda", threads=1, deterministic=True)
    assert calls == [True] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`cuda(count, error, built)`: so many GPUs are shown; PyTorch's version is `built`."""

    def shows(count: int, error: str = "", built: str = "2.13.0") -> None:
        answer = SimpleNamespace(returncode=bool(error), stdout=f"{count}\n", stderr=error)
        monkeypatch.setattr(devices, "version", lambda _: built)
        monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: answer)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return shows


@pytest.mark.parametrize(
    ("shown", "count", "names"),
    [
        (None, 2, ["0", "1"]),
        (None, 0, []),
        ("GPU-2, MIG-1", 2, ["GPU-2", "MIG-1"]),
        ("0,7,1", 1, ["0"]),  # CUDA ignores what follows a word without a GPU
        *((word, 2, []) for word in ("", "-1", "NoDevFiles")),
    ],
)
def test_gpus_are_those_that_cuda_shows(cuda, monkeypatch, shown, count, names) -> None:
    cuda(count)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert devices.gpus() == names
    cuda(count, built="2.13.0+cpu")
    assert devices.gpus() == []


def test_who_asks_for_gpus_gets_no_cpu_in_their_place(cuda, monkeypatch) -> None:
    cuda(0, error="CUDA error 999")
    with pytest.raises(UserError, match="CUDA error 999"):
        devices.device_for("auto", threads=1)
    assert devices.device_for("cpu", threads=1) == torch.device("cpu")
    cuda(0)
    assert devices.device_for("auto", threads=1) == torch.device("cpu")
    with pytest.raises(UserError, match="--device"):
        devices.device_for("cuda", threads=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-gone")
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES=GPU-gone"):
        devices.gpus()


@pytest.mark.parametrize(("error", "count"), [(0, 2), (100, 0), (999, None)])
def test_the_driver_is_asked_in_a_process_of_its_own(monkeypatch, error, count) -> None:
    def shown(pointer) -> int:
        pointer._obj.value = 2
        return 0

    driver = SimpleNamespace(cuInit=lambda _: error, cuDeviceGetCount=shown)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    if count is None:
        with pytest.raises(SystemExit, match="999"):
            devices.driver_count()
    else:
        assert devices.driver_count() == count
    monkeypatch.setattr(devices, "version", lambda _: "2.13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert len(devices.gpus()) == torch.cuda.device_count()  # whatever this machine has
