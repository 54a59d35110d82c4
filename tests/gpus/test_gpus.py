"""Jobs see the GPUs that CUDA shows, one each, and share them by slots; and what a CPU is."""

import ctypes
import os
import platform
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
from twf.gpus import cpu, devices

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


def test_jobs_spread_over_gpus_share_them_and_free_a_slot_however_they_end(start: Start) -> None:
    assert [own(start(2, "A", "B")) for _ in range(4)] == ["A", "B", "A", "B"]
    together = Counter(own(job) for job in [start(6, "A", "B") for _ in range(4)])
    assert together == {"A": 2, "B": 2}, "jobs that start together do not crowd"
    for number in (signal.SIGKILL, signal.SIGTERM):
        first = start(1, f"C{number}")
        assert own(first) == f"C{number}"
        second = start(1, f"C{number}")
        assert second.stderr.readline().startswith("waiting for a GPU: 1 of your jobs on each of 1")
        first.send_signal(number)
        assert own(second) == f"C{number}"


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with two GPUs, no slot taken."""
    monkeypatch.setattr(devices, "gpus", lambda: ["A", "B"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(devices, "_held", [])
    for name in ("CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "")  # restored when the test ends


def test_a_job_sees_only_its_own_gpu_and_keeps_it(two_gpus, start: Start, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", calls.append)
    assert own(start(1, "A", "B")) == "A"
    for _ in range(2):
        assert devices.device_for(threads=1) == torch.device("cuda")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "B"
    assert calls == [] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ""
    devices.device_for(threads=1, deterministic=True)
    assert calls == [True] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_a_job_on_the_cpu_takes_no_slot_and_computes_with_its_threads(
    two_gpus, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(devices, "gpus", list)
    for threads in (3, 1):
        assert devices.device_for(threads) == torch.device("cpu")
        assert torch.get_num_threads() == threads
    assert devices._held == [] and not list(tmp_path.iterdir())


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
def test_gpus_are_those_that_cuda_shows(monkeypatch, tmp_path, capsys, shown, count, names) -> None:
    """A PyTorch that is built for CPUs beside a driver is told, unless no GPU is asked for."""
    monkeypatch.setattr(devices, "DRIVER", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    answer = SimpleNamespace(returncode=0, stdout=f"{count}\n", stderr="")
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: answer)
    for built, expected in (("2.13.0", names), ("2.13.0+cpu", [])):
        monkeypatch.setattr(devices, "version", lambda _, built=built: built)
        assert devices.gpus() == expected
    told = "UV_TORCH_BACKEND=auto make setup" in capsys.readouterr().err
    assert told == (shown not in devices.NONE)


def test_who_asks_for_gpus_gets_no_cpu_in_their_place(monkeypatch) -> None:
    """CUDA is asked in a process of its own, and a driver's errors are told from none."""
    driver = SimpleNamespace(cuInit=lambda _: 999, cuDeviceGetCount=lambda _: 0)
    with monkeypatch.context() as patch:
        patch.setattr(ctypes, "CDLL", lambda _: driver)
        with pytest.raises(SystemExit, match="999"):
            devices.driver_count()
        driver.cuInit = lambda _: devices.NO_DEVICE
        assert devices.driver_count() == 0
    monkeypatch.setattr(devices, "version", lambda _: "2.13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    answer = SimpleNamespace(returncode=1, stdout="", stderr="CUDA error 999")
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: answer)
    with pytest.raises(UserError, match="CUDA error 999"):
        devices.device_for(threads=1)
    answer.returncode, answer.stderr = 0, ""
    assert devices.device_for(threads=1) == torch.device("cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-gone")
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES=GPU-gone"):
        devices.gpus()


@pytest.mark.parametrize(
    ("cpuinfo", "gains"),
    [
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile", True),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_bf16", False),  # measured
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f avx512_bf16", True),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2", False),
        ("processor\t: 0\nFeatures\t: fp asimd bf16", False),  # ARM tells no model either
    ],
)
def test_bfloat16_is_for_cpus_that_gain_by_it(tmp_path, monkeypatch, cpuinfo, gains):
    (tmp_path / "cpuinfo").write_text(f"{cpuinfo}\n")
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    assert cpu.multiplies_bfloat16() is gains
    assert cpu.cpu_name(2) == f"{platform.machine()}, 2 threads"
