"""GPUs as a stand-in for NVIDIA's library tells of them, and as a fresh PyTorch does."""

from __future__ import annotations

import time

import pynvml
import pytest
import stand_ins.pynvml
import torch

from twf.gpus import nvidia
from twf.gpus.nvidia import Gpu, Usage

A, B = "GPU-11111111-aaaa-0000-0000-000000000000", "GPU-22222222-bbbb-0000-0000-000000000000"
MIG = "MIG-33333333-cccc-0000-0000-00000000000"
NAME = "NVIDIA A100-SXM4-40GB"
IDLE = Usage(1, 1, 0.0)
UNSUPPORTED = "NVMLError_NotSupported"


def test_the_stand_in_has_what_the_library_has() -> None:
    names = {name for name in vars(stand_ins.pynvml) if name.lower().startswith("nvml")}
    assert len(names) > 10 and names <= set(vars(pynvml))
    assert all(issubclass(getattr(pynvml, n), pynvml.NVMLError) for n in names if "Error" in n)


def test_each_gpu_is_found_and_instances_stand_for_the_one_that_is_partitioned(nvml) -> None:
    nvml.has(nvml.gpu(A, NAME), nvml.gpu(B, NAME, instances=[]))
    assert nvidia.installed() == ({Gpu(A, NAME): IDLE, Gpu(B, NAME): IDLE}, "")
    instances = [
        nvml.gpu(f"{MIG}0", f"{NAME} MIG 3g.20gb", busy=UNSUPPORTED),
        "NVMLError_NotFound",
        nvml.gpu(f"{MIG}1", "MIG 3g.20gb", memory=(10, 20), busy=UNSUPPORTED),
    ]
    nvml.has(nvml.gpu(A, NAME, instances=instances), nvml.gpu(B, NAME))
    instance = f"{NAME} MIG 3g.20gb"
    found = {
        Gpu(f"{MIG}0", instance): IDLE,
        Gpu(f"{MIG}1", instance): Usage(10, 20, 0.0),
        Gpu(B, NAME): IDLE,
    }
    assert nvidia.installed() == (found, "")
    assert list(nvidia.installed()[0]) == list(found)


def test_a_gpu_that_does_not_answer_leaves_the_others(nvml) -> None:
    lost = "NVMLError_GpuIsLost"
    for broken in (lost, nvml.gpu(B, memory=lost)):
        nvml.has(broken, nvml.gpu(A, NAME))
        found, wrong = nvidia.installed()
        assert list(found) == [Gpu(A, NAME)]
        assert lost in wrong and "GPU 0" in wrong


def test_the_gpus_of_other_jobs_of_a_cluster_are_left_out(nvml) -> None:
    nvml.has("NVMLError_NoPermission", nvml.gpu(A, NAME))
    assert nvidia.installed() == ({Gpu(A, NAME): IDLE}, "")


def test_a_driver_that_fails_or_has_no_gpu_is_told(nvml) -> None:
    nvml.has(error="NVMLError_DriverNotLoaded")
    assert nvidia.installed() == ({}, "NVMLError_DriverNotLoaded")
    nvml.has()
    found, wrong = nvidia.installed()
    assert not found and wrong


def test_a_driver_that_hangs_is_not_waited_for(nvml, monkeypatch) -> None:
    monkeypatch.setattr(nvidia, "PATIENCE", 0.2)
    nvml.has(error="NVMLError_DriverNotLoaded", seconds=3)
    before = time.monotonic()
    found, wrong = nvidia.installed()
    assert not found and wrong
    assert time.monotonic() - before < 2


def test_without_the_library_the_drivers_files_tell(nvml, monkeypatch, tmp_path) -> None:
    nvml.has(error="NVMLError_LibraryNotFound")
    monkeypatch.setattr(nvidia, "DRIVER", tmp_path / "gpus")
    assert nvidia.installed() == ({}, "")
    for bus, gpu in (("0000:5f:00.0", A), ("0000:af:00.0", B)):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
        text = f"Model: \t\t {NAME}\nIRQ:   \t\t 42\nGPU UUID: \t {gpu}\n"
        (tmp_path / "gpus" / bus / "information").write_text(text)
    assert nvidia.installed() == ({Gpu(A, NAME): None, Gpu(B, NAME): None}, "")


def test_the_usage_is_known_where_the_driver_tells_it(nvml) -> None:
    nvml.has(
        nvml.gpu("GPU-a", memory=(30000, 40000), busy=25),
        nvml.gpu("GPU-b", memory=(40000, 40000), busy=UNSUPPORTED),
        nvml.gpu("GPU-c", memory=UNSUPPORTED),
        nvml.gpu("GPU-d", memory=(0, 0)),
    )
    found, wrong = nvidia.installed()
    assert list(found.values()) == [Usage(30000, 40000, 0.25), Usage(40000, 40000, 0), None, None]
    assert Usage(30000, 40000, 0.25).load == 0.5 and wrong == ""


def test_a_gpu_that_is_not_there_refuses() -> None:
    """Whatever this PyTorch is built for."""
    assert "Error" in str(nvidia.compute_error(Gpu(A, NAME)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_that_is_there_computes_and_is_known() -> None:
    found, said = nvidia.installed()
    assert found and said == ""
    assert [nvidia.compute_error(gpu) for gpu in found] == [None] * len(found)
