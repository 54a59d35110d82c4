"""A job sees no GPU but its own, and its next attempt takes another one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from pathlib import Path

import pytest
import torch

from twf import files
from twf.cli import training
from twf.errors import GpuError
from twf.gpus import devices, nvidia, slots, visible
from twf.gpus.nvidia import Gpu
from twf.jobs import provenance
from twf.jobs.resume import keeping

A, B = Gpu("GPU-a", "A GPU"), Gpu("GPU-b", "A GPU")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with two GPUs that PyTorch can use, no slot taken."""
    monkeypatch.setattr(visible, "gpus", lambda: [A, B])
    monkeypatch.setattr(devices, "_refusal", lambda: None)
    monkeypatch.setattr(nvidia, "installed", lambda: ({}, ""))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots, "_held", [])
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # restored when the test ends


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_job_sees_its_own_gpu_alone(two_gpus, monkeypatch, name) -> None:
    monkeypatch.setattr(nvidia, "installed", lambda: ({A: nvidia.Usage(8, 10, 0.5)}, ""))
    assert devices.device_for(name, threads=1) == torch.device("cuda")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == B.id
    assert slots.held() == B


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("threads", [3, 1])
def test_a_job_computes_with_its_own_number_of_threads(threads) -> None:
    devices.device_for("cpu", threads=threads)
    assert torch.get_num_threads() == threads


def test_a_deterministic_job_says_so_to_pytorch(two_gpus, monkeypatch) -> None:
    told = []
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.setattr(torch, "use_deterministic_algorithms", told.append)
    devices.device_for("cpu", threads=1, deterministic=True)
    devices.device_for("cuda", threads=1)
    assert told == [] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ""
    devices.device_for("cuda", threads=1, deterministic=True)
    assert told == [True] and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_a_job_on_the_cpu_takes_no_slot(two_gpus, tmp_path) -> None:
    tried = tmp_path / "gpus.txt"
    assert devices.device_for("cpu", threads=1, tried=tried) == torch.device("cpu")
    assert slots.held() is None and not tried.exists()


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has", "gpu_slots"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "gpu_slots"),
        ("CUDA driver is too old.", "twf doctor"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_named_with_the_remedy(
    two_gpus, monkeypatch, said, remedy
) -> None:
    monkeypatch.setattr(devices, "_refusal", lambda: said)
    with pytest.raises(GpuError) as refused:
        devices.device_for("auto", threads=1)
    for part in (A.id, said[:20], remedy):
        assert part in str(refused.value)


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
ILLEGAL = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
FAILED = torch.AcceleratorError("CUDA error: unspecified launch failure\nCompile with")
ERRORS = [  # in the block, what another process says of the same GPU, and what is raised
    (FULL, None, GpuError, "GPU-a .*gpu_slots"),
    (FAILED, "unknown error", GpuError, "GPU-a .*launch failure"),
    # the GPU is well: a mistake in our own code
    (ILLEGAL, None, torch.AcceleratorError, "illegal"),
    (ILLEGAL, "out of memory", torch.AcceleratorError, "illegal"),
    (ILLEGAL, "all devices are busy or unavailable", torch.AcceleratorError, "illegal"),
    (RuntimeError("shapes differ"), "unknown error", RuntimeError, "shapes"),
]


@pytest.mark.parametrize(("error", "elsewhere", "raised", "named"), ERRORS)
def test_an_error_is_a_gpus_where_its_memory_is_full_or_it_fails_for_others_too(
    two_gpus, monkeypatch, error, elsewhere, raised, named
) -> None:
    devices.device_for("auto", threads=1)
    monkeypatch.setattr(nvidia, "compute_error", lambda gpu: elsewhere if gpu == A else "no GPU")
    with pytest.raises(raised, match=named), devices.watched():
        raise error


def attempt(number: int, end: str, seen: Path) -> None:
    """One attempt of a job, which notes its GPU in a file and ends in the way it is told."""
    with training.resumable("demo", "job", number) as tried, devices.watched():
        devices.device_for("auto", threads=1, tried=tried)
        with keeping(files.state_file("demo", "job"), {}, 1000.0) as keeper:
            seen.write_text(os.environ["CUDA_VISIBLE_DEVICES"])
            if end == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if end == "fails":
                raise torch.AcceleratorError("CUDA error: unspecified launch failure")
            keeper.forget()


@pytest.mark.parametrize("end", ["fails", "is killed"])
def test_the_next_attempt_of_a_job_takes_another_gpu_until_all_were_tried(
    two_gpus, tmp_path: Path, monkeypatch, end: str
) -> None:
    """Each attempt is a process, as Snakemake's are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nvidia, "compute_error", lambda _: "unknown error")
    usage = {A: nvidia.Usage(1, 1, 0.0), B: nvidia.Usage(1, 1, 0.5)}  # the one that fails is idle
    monkeypatch.setattr(nvidia, "installed", lambda: (usage, ""))

    def taken(number: int, end: str) -> str:
        words = (number, end, tmp_path / "seen")
        process = multiprocessing.get_context("fork").Process(target=attempt, args=words)
        process.start()
        process.join()
        assert process.exitcode == {"ends": 0, "fails": 1, "is killed": -signal.SIGKILL}[end]
        return (tmp_path / "seen").read_text()

    assert [taken(1, end), taken(2, end), taken(3, end)] == [A.id, B.id, A.id]
    assert [taken(1, end), taken(2, "ends")] == [A.id, B.id]  # a new call tries all again
    assert [taken(0, end), taken(0, "ends")] == [A.id, A.id]  # by hand, as well
    assert not (tmp_path / "states/demo/job").exists()


def test_an_attempt_waits_for_another_gpu_though_the_one_that_failed_is_free(
    two_gpus, tmp_path: Path, monkeypatch
) -> None:
    asked = []
    monkeypatch.setattr(slots, "take", lambda gpus, _: asked.append(gpus) or gpus[0])
    for _ in range(3):
        devices.device_for("auto", threads=1, tried=tmp_path / "gpus.txt")
    assert asked == [[A, B], [B], [A, B]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_that_is_there_does_not_refuse() -> None:
    assert devices._refusal() is None


def test_the_provenance_says_which_gpu_it_was(monkeypatch) -> None:
    monkeypatch.setattr(provenance, "device_name", lambda device: "A GPU")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", B.id)
    assert provenance.device_and_versions(torch.device("cuda"))["gpu"] == B.id
    assert provenance.device_and_versions(torch.device("cpu"))["gpu"] is None
