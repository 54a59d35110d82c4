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

from twf.errors import GpuError, UserError
from twf.gpus import devices, slots, visible
from twf.gpus.visible import Gpu

A, B = Gpu("GPU-a", "A GPU"), Gpu("GPU-b", "A GPU")
JOB = """
import subprocess, sys
from twf.gpus import slots
from twf.gpus.visible import Gpu
slots.POLL = 0.05
print(slots.take([Gpu(name, "A GPU") for name in sys.argv[2:]], int(sys.argv[1])).id, flush=True)
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
    """The GPU of a job, once it has one."""
    return job.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_slot_is_free_again_however_its_job_ends(start: Start, number: int) -> None:
    first = start(1, A)
    assert own(first) == A.id
    second = start(1, A)
    assert second.stderr.readline().startswith("waiting for a GPU: 1 of your jobs on each of 1")
    first.send_signal(number)
    assert own(second) == A.id


def test_jobs_spread_over_gpus_and_then_share_them(start: Start) -> None:
    jobs, seen = [], []
    for _ in range(4):
        jobs.append(start(2, A, B))
        seen.append(own(jobs[-1]))
    assert seen == [A.id, B.id, A.id, B.id], "the first slot of each before the second of one"
    jobs[1].communicate()
    assert own(start(2, A, B)) == B.id
    together = Counter(own(job) for job in [start(4, A, B) for _ in range(4)])
    assert together == {A.id: 2, B.id: 2}, "jobs that start together do not crowd"


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with two GPUs that PyTorch can use, no slot taken."""
    monkeypatch.setattr(visible, "gpus", lambda: [A, B])
    monkeypatch.setattr(devices, "_require_computing", lambda gpu: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots, "_held", [])
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "")  # restored when the test ends


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_job_sees_only_its_own_gpu_and_keeps_it(two_gpus, start: Start, name: str) -> None:
    assert own(start(1, A, B)) == A.id
    for _ in range(2):
        assert devices.device_for(name, threads=1) == torch.device("cuda")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == B.id


def test_a_lock_that_cannot_be_made_is_named(two_gpus, tmp_path: Path) -> None:
    (tmp_path / f"twf-{os.getuid()}-GPU-a.0.lock").mkdir()
    with pytest.raises(UserError, match=r"GPU-a\.0\.lock"):
        slots.take([A], 1)


@pytest.mark.parametrize("threads", [3, 1])
def test_a_job_on_the_cpu_takes_no_slot_and_computes_with_its_threads(
    two_gpus, threads, tmp_path
) -> None:
    assert devices.device_for("cpu", threads=threads) == torch.device("cpu")
    assert torch.get_num_threads() == threads
    assert slots._held == [] and not list(tmp_path.iterdir())


def test_a_deterministic_job_says_so_to_pytorch(two_gpus, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", calls.append)
    devices.device_for("cpu", threads=1, deterministic=True)
    devices.device_for("cuda", threads=1)
    assert calls == [] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ""
    devices.device_for("cuda", threads=1, deterministic=True)
    assert calls == [True] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch can")
def test_a_gpu_that_pytorch_cannot_use_is_named_with_the_remedy() -> None:
    with pytest.raises(GpuError, match=r"cannot compute on A GPU GPU-a \(.*twf doctor"):
        devices._require_computing(A)


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
BUSY = torch.AcceleratorError("CUDA error: all CUDA-capable devices are busy or unavailable\nCom")
ILLEGAL = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize("error", [FULL, BUSY, ILLEGAL, RuntimeError("shapes differ")])
def test_only_a_gpu_that_others_use_is_the_users_to_mend(error) -> None:
    expected = GpuError if error in (FULL, BUSY) else type(error)
    with pytest.raises(expected) as raised, devices.watched():
        raise error
    assert type(raised.value) is expected
    assert expected is not GpuError or "gpu_slots" in str(raised.value)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`cuda(names, error, built)`: CUDA shows such GPUs; PyTorch's version is `built`."""

    def shows(*names: str, error: str = "", built: str = "2.13.0") -> None:
        lines = "".join(f"{name}\n" for name in names).encode()
        answer = SimpleNamespace(returncode=int(bool(error)), stdout=lines, stderr=error.encode())
        monkeypatch.setattr(visible, "version", lambda _: built)
        monkeypatch.setattr(visible.subprocess, "run", lambda *_, **__: answer)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return shows


@pytest.mark.parametrize(
    ("shown", "names", "ids"),
    [
        (None, "xy", ["0", "1"]),
        (None, "", []),
        ("1", "y", ["1"]),
        ("GPU-2, GPU-1", "yx", ["GPU-2", "GPU-1"]),
        ("MIG-3", "z", ["MIG-3"]),
        ("0,7,1", "x", ["0"]),  # CUDA ignores what follows a word without a GPU
        *((word, "xy", []) for word in ("", "-1", "NoDevFiles")),
    ],
)
def test_gpus_are_those_that_cuda_shows(cuda, monkeypatch, shown, names, ids) -> None:
    cuda(*names)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert visible.gpus() == [Gpu(i, name) for i, name in zip(ids, names, strict=False)]
    cuda(*names, built="2.13.0+cpu")
    assert visible.gpus() == []


def test_who_asks_for_gpus_gets_no_cpu_in_their_place(cuda, monkeypatch) -> None:
    cuda(error="CUDA error 999")
    with pytest.raises(GpuError, match="CUDA error 999"):
        devices.device_for("auto", threads=1)
    assert devices.device_for("cpu", threads=1) == torch.device("cpu")
    cuda()
    assert devices.device_for("auto", threads=1) == torch.device("cpu")
    with pytest.raises(UserError, match="--device"):
        devices.device_for("cuda", threads=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-gone")
    with pytest.raises(GpuError, match="CUDA_VISIBLE_DEVICES=GPU-gone"):
        visible.gpus()


@pytest.mark.parametrize("error", [0, 100, 999])
def test_the_driver_is_asked_for_names(monkeypatch, error) -> None:
    def name_of(buffer, _, number) -> None:
        buffer.value = f"GPU {number}".encode()

    def count(pointer) -> int:
        pointer._obj.value = 2
        return 0

    driver = SimpleNamespace(
        cuInit=lambda _: error, cuDeviceGetCount=count, cuDeviceGetName=name_of
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    if error == 999:
        with pytest.raises(OSError, match="999"):
            visible.driver_names()
    else:
        assert visible.driver_names() == ([] if error else ["GPU 0", "GPU 1"])


def test_the_question_is_asked_in_a_process_of_its_own(monkeypatch) -> None:
    """Whatever this machine has, PyTorch counts as many."""
    monkeypatch.setattr(visible, "version", lambda _: "2.13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if torch.version.cuda is not None:
        assert len(visible.gpus()) == torch.cuda.device_count()
    else:
        assert isinstance(visible.gpus(), list)
