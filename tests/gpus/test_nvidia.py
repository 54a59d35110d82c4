"""GPUs as a stand-in for `nvidia-smi` tells of them, and as a fresh PyTorch does."""

from __future__ import annotations

import time

import pytest
import torch

from twf.gpus import nvidia
from twf.gpus.nvidia import Gpu, Usage

A, B = "GPU-11111111-aaaa-0000-0000-000000000000", "GPU-22222222-bbbb-0000-0000-000000000000"
MIG = "MIG-33333333-cccc-0000-0000-00000000000"
NAME = "NVIDIA A100-SXM4-40GB"
TWO = f"""GPU 0: {NAME} (UUID: {A})
GPU 1: {NAME} (UUID: {B})
"""
CUT = f"""GPU 0: {NAME} (UUID: {A})
  MIG 3g.20gb     Device  0: (UUID: {MIG}0)
  MIG 3g.20gb     Device  1: (UUID: {MIG}1)
GPU 1: {NAME} (UUID: {B})
"""
UNABLE = "Unable to determine the device handle for GPU1: 0000:5F:00.0: Unknown Error"


def test_each_gpu_is_found_and_instances_stand_for_the_one_that_is_cut() -> None:
    assert nvidia.parse("") == []
    assert nvidia.parse(TWO) == [Gpu(A, NAME), Gpu(B, NAME)]
    instance = f"{NAME} MIG 3g.20gb"
    assert nvidia.parse(CUT) == [Gpu(f"{MIG}0", instance), Gpu(f"{MIG}1", instance), Gpu(B, NAME)]


def test_the_tool_is_asked(nvidia_smi) -> None:
    nvidia_smi.lists(CUT)
    assert nvidia.installed() == (nvidia.parse(CUT), "")


@pytest.mark.parametrize("status", [0, 15])
def test_a_gpu_that_does_not_answer_leaves_the_others(nvidia_smi, status: int) -> None:
    """Versions of the tool write the line here or there, and end in success or not."""
    first = TWO.splitlines(keepends=True)[0]
    for listing, complaint in ((first + UNABLE, ""), (UNABLE + "\n" + first, ""), (first, UNABLE)):
        nvidia_smi.lists(listing, complaint, status)
        assert nvidia.installed() == ([Gpu(A, NAME)], UNABLE)


def test_a_failure_of_the_tool_is_told(nvidia_smi) -> None:
    nvidia_smi.lists("Failed to initialize NVML: Driver/library version mismatch\n", status=18)
    found, said = nvidia.installed()
    assert (found, said) == ([], "Failed to initialize NVML: Driver/library version mismatch")
    nvidia_smi.lists("", status=9)
    assert nvidia.installed() == ([], "it ended with status 9")


def test_a_tool_that_hangs_is_not_waited_for(nvidia_smi, monkeypatch) -> None:
    monkeypatch.setattr(nvidia, "PATIENCE", 0.2)
    nvidia_smi.path.write_text("#!/bin/sh\nexec sleep 1000\n")
    before = time.monotonic()
    assert nvidia.installed() == ([], "no answer in 0 seconds")
    assert nvidia.usage() == {}
    assert time.monotonic() - before < 10


def test_without_the_tool_the_drivers_files_tell(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvidia, "DRIVER", tmp_path / "gpus")
    assert nvidia.installed() == ([], "")
    assert nvidia.usage() == {}
    for bus, gpu in (("0000:5f:00.0", A), ("0000:af:00.0", B)):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
        text = f"Model: \t\t {NAME}\nIRQ:   \t\t 42\nGPU UUID: \t {gpu}\n"
        (tmp_path / "gpus" / bus / "information").write_text(text)
    assert nvidia.installed() == ([Gpu(A, NAME), Gpu(B, NAME)], "")


def test_what_is_used_is_known_where_the_tool_says_it(nvidia_smi) -> None:
    lost = "[GPU is lost]"
    nvidia_smi.uses(
        {
            A: (30000, 40000, 25),
            B: (40000, 40000, "[N/A]"),
            "GPU-c": (lost, lost, lost),
            "GPU-d": ("[N/A]", "[N/A]", 3),
            UNABLE: ("", "", ""),
        }
    )
    assert nvidia.usage() == {A: Usage(30000, 40000, 0.25), B: Usage(40000, 40000, 0.0)}
    assert nvidia.usage()[A].load == 0.5


def test_a_gpu_that_is_not_there_refuses() -> None:
    """Whatever this PyTorch is built for."""
    assert "Error" in str(nvidia.refuses(Gpu(A, NAME)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_that_is_there_computes_and_is_known() -> None:
    found, said = nvidia.installed()
    assert found and said == ""
    assert [nvidia.refuses(gpu) for gpu in found] == [None] * len(found)
