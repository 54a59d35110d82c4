"""A job sees no GPU but its own, and one that fails is told and not used again."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from twf import errors
from twf.errors import GpuError, UserError
from twf.gpus import devices, lost, nvidia, slots, visible
from twf.gpus.nvidia import Gpu
from twf.jobs import provenance

A, B = Gpu("GPU-a", "A GPU"), Gpu("GPU-b", "A GPU")

# It trains until its GPU fails, if that is the one to fail. No GPU is there in truth, so that
# PyTorch refuses it in the other process, too.
JOB = """
import sys
from twf.gpus import devices, visible
from twf.engines import environment
from twf.errors import UserError
from twf.gpus.nvidia import Gpu
visible.gpus = lambda: visible.lost.usable([Gpu("GPU-a", "A GPU"), Gpu("GPU-b", "A GPU")])
devices._refusal = lambda: None
visible.lost.BOOT = workflow.Path(sys.argv[1])
try:
    with devices.watched():
        devices.device_for("auto", threads=1)
        gpu = devices.slots.held().id
        if gpu == "GPU-a":
            raise RuntimeError("CUDA error: unspecified launch failure\\nCompile with TORCH_USE")
        print(gpu)
except UserError as error:
    sys.exit(f"error: {error}")
"""


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with two GPUs that PyTorch can use, no slot taken."""
    monkeypatch.setattr(visible, "gpus", lambda: [A, B])
    monkeypatch.setattr(devices, "_refusal", lambda: None)
    monkeypatch.setattr(nvidia, "usage", dict)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots, "_held", [])
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # restored when the test ends
    errors.warn.cache_clear()


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_job_sees_its_own_gpu_alone(two_gpus, monkeypatch, name) -> None:
    monkeypatch.setattr(nvidia, "usage", lambda: {A.id: nvidia.Usage(8, 10, 0.5)})
    assert devices.device_for(name, threads=1) == torch.device("cuda")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == B.id
    assert slots.held() == B


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
    assert slots.held() is None


def refuse(monkeypatch: pytest.MonkeyPatch, here: str | None, elsewhere: dict[str, str]) -> None:
    """Have PyTorch refuse a job's GPU, and by identifier those that other processes try."""
    monkeypatch.setattr(devices, "_refusal", lambda: here)
    monkeypatch.setattr(nvidia, "refuses", lambda gpu: elsewhere.get(gpu.id))


def test_pytorch_that_can_use_no_gpu_is_told(two_gpus, monkeypatch) -> None:
    refuse(monkeypatch, "CUDA driver is too old.", {A.id: "too old", B.id: "too old"})
    with pytest.raises(UserError, match=r"there is a A GPU, .* cannot use it \(CUDA driver is too"):
        devices.device_for("auto", threads=1)
    assert lost.marks() == {}


def test_a_gpu_that_fails_beside_one_that_computes_is_lost_from_the_start(
    two_gpus, monkeypatch
) -> None:
    refuse(monkeypatch, "CUDA unknown error - this may be", {A.id: "unknown error"})
    with pytest.raises(GpuError, match="A GPU GPU-a does not compute any more"):
        devices.device_for("auto", threads=1)
    assert lost.usable([A, B]) == [B]


@pytest.mark.parametrize(
    "said",
    [
        "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    ],
)
def test_a_gpu_that_others_have_filled_is_not_lost(two_gpus, monkeypatch, said) -> None:
    refuse(monkeypatch, said, {})
    with pytest.raises(GpuError, match="A GPU GPU-a has too little memory left, or .*gpu_slots"):
        devices.device_for("auto", threads=1)
    assert lost.marks() == {}


@pytest.fixture
def at_work(two_gpus) -> None:
    """This process holds a GPU that has computed."""
    devices.device_for("auto", threads=1)


def test_too_little_memory_names_the_gpu_and_what_to_lower(at_work) -> None:
    with (
        pytest.raises(GpuError, match=r"A GPU GPU-a .*\(CUDA out of memory. Tried.*gpu_slots"),
        devices.watched(),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    assert lost.marks() == {}


@pytest.mark.parametrize(
    "elsewhere", [None, "out of memory", "all devices are busy or unavailable"]
)
def test_an_error_on_a_gpu_that_is_well_stays_what_it_is(at_work, monkeypatch, elsewhere) -> None:
    refuse(monkeypatch, None, {A.id: elsewhere})
    with pytest.raises(torch.AcceleratorError, match="illegal"), devices.watched():
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    assert lost.marks() == {}


def test_an_error_of_another_kind_asks_no_gpu(at_work, monkeypatch) -> None:
    monkeypatch.setattr(nvidia, "refuses", lambda gpu: pytest.fail("it was asked"))
    with pytest.raises(RuntimeError, match="shapes"), devices.watched():
        raise RuntimeError("shapes differ")


def test_a_lost_gpu_is_told_once_by_each_job_and_used_again_after_a_restart(
    tmp_path: Path, nvidia_smi, monkeypatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")

    def job() -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", JOB, str(boot)]
        return subprocess.run(words, capture_output=True, text=True)

    first = job()
    (path,) = tmp_path.glob("twf-gpus-*/GPU-a.lost")
    assert first.returncode == 1
    assert first.stderr.startswith(
        "error: A GPU GPU-a does not compute any more (CUDA error: unspecified launch failure). "
        f"No job takes it until the machine restarts, or {path} is deleted"
    )
    for _ in range(2):
        later = job()
        assert (later.returncode, later.stdout) == (0, "GPU-b\n")
        assert later.stderr.count("GPU-a failed on") == 1 and str(path) in later.stderr
    boot.write_text("second\n")
    assert "GPU-a does not compute any more" in job().stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_that_is_there_does_not_refuse() -> None:
    assert devices._refusal() is None


def test_the_provenance_says_which_gpu_it_was(monkeypatch) -> None:
    monkeypatch.setattr(provenance, "device_name", lambda device: "A GPU")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", B.id)
    assert provenance.environment(torch.device("cuda"))["gpu"] == B.id
    assert provenance.environment(torch.device("cpu"))["gpu"] is None
