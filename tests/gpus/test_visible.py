"""Which GPUs jobs may use, and the CPU of this machine, without PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from twf import errors
from twf.errors import GpuError, UserError
from twf.gpus import cpu, nvidia, visible
from twf.gpus.nvidia import Gpu

A, B = "GPU-11111111-aaaa-0000-0000-000000000000", "GPU-22222222-bbbb-0000-0000-000000000000"
C = "GPU-33333333-cccc-0000-0000-000000000000"
TWO = [Gpu(A, "A GPU"), Gpu(B, "A GPU")]


@pytest.mark.parametrize(
    ("shown", "ids", "gone"),
    [
        (None, [A, B], []),
        ("", [], []),
        ("-1", [], []),
        ("1", [B], []),
        ("1,0", [B, A], []),
        ("0, 1", [A, B], []),
        ("0,0", [A], []),
        ("0,7,1", [A], ["7"]),  # as for CUDA: what follows a wrong one does not count
        (B, [B], []),
        ("GPU-2222", [B], []),
        ("GPU", [], []),  # two of them
        (f"{C},{B}", [B], [C]),
        (f"GPU-,{B}", [], ["GPU-"]),
    ],
)
def test_the_environment_shows_gpus_as_it_does_to_cuda(shown, ids, gone) -> None:
    chosen, missing = visible.visible(TWO, shown)
    assert ([gpu.id for gpu in chosen], missing) == (ids, gone)


@pytest.fixture
def two_gpus(nvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A machine with two GPUs, and PyTorch built for them; no warning was given yet."""
    nvml.has(nvml.gpu(A), nvml.gpu(B))
    monkeypatch.setattr(visible, "version", lambda _: "2.13.0")
    monkeypatch.setattr(nvidia, "DRIVER", tmp_path / "gpus")
    errors.warn.cache_clear()
    return nvml


def test_gpus_do_not_count_where_pytorch_cannot_use_them(two_gpus, monkeypatch) -> None:
    for version, found in {"2.13.0": TWO, "2.13.0+cu130": TWO, "2.13.0+cpu": []}.items():
        monkeypatch.setattr(visible, "version", lambda _, version=version: version)
        assert visible.gpus() == found


def test_a_gpu_that_is_gone_is_told_once_and_not_used(two_gpus, monkeypatch, capsys) -> None:
    two_gpus.has(two_gpus.gpu(A), "NVMLError_GpuIsLost")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{B},{A}")
    assert visible.gpus() == visible.gpus() == TWO[:1]
    lost, missing = capsys.readouterr().err.splitlines()
    assert lost.startswith("warning: ") and "GpuIsLost" in lost
    assert missing.startswith("warning: ") and B in missing


def test_who_asks_for_gpus_gets_no_cpu_in_their_place(two_gpus, monkeypatch) -> None:
    two_gpus.has(error="NVMLError_DriverNotLoaded")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", A)
    with pytest.raises(GpuError, match=f"DriverNotLoaded.*{A}"):
        visible.kind("auto")
    assert visible.kind("cpu") == "cpu"
    for word in ("", "-1", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", word)
        assert visible.kind("auto") == "cpu"


def test_a_number_without_a_gpu_is_a_mistake_where_there_are_gpus(two_gpus, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with pytest.raises(GpuError, match="2 of CUDA_VISIBLE_DEVICES"):
        visible.kind("auto")
    two_gpus.has()
    assert visible.kind("auto") == "cpu"


def test_a_driver_without_a_gpu_is_told_and_one_without_its_gpus_is_an_error(
    two_gpus, tmp_path, capsys
) -> None:
    two_gpus.has(error="NVMLError_DriverNotLoaded")
    assert visible.kind("auto") == "cpu"
    assert "DriverNotLoaded" in capsys.readouterr().err
    (tmp_path / "gpus/0000:5f:00.0").mkdir(parents=True)
    with pytest.raises(GpuError, match="DriverNotLoaded"):
        visible.kind("auto")


def test_a_device_is_chosen_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "gpus", lambda: [Gpu(A, "A GPU")])
    assert [visible.kind(word) for word in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(visible, "gpus", list)
    assert [visible.kind(word) for word in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(UserError, match="--device"):
        visible.kind("cuda")


def test_cores_and_memory_are_those_of_this_machine() -> None:
    assert cpu.cores() >= 1
    assert cpu.free_memory_mib() > 1
    assert cpu.cpu_name(3).endswith(", 3 threads")


@pytest.mark.parametrize(
    ("version", "shown", "said"),
    [("2.13.0", None, True), ("2.13.0+cpu", None, False), ("2.13.0", "", False)],
)
def test_without_a_driver_it_is_said_that_the_cpu_is_used(
    nvml, monkeypatch, tmp_path, capsys, version, shown, said
) -> None:
    nvml.has(error="NVMLError_LibraryNotFound")
    monkeypatch.setattr(visible, "version", lambda _: version)
    monkeypatch.setattr(nvidia, "DRIVER", tmp_path / "gpus")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    errors.warn.cache_clear()
    assert visible.gpus() == []
    assert ("the CPU is used" in capsys.readouterr().err) == said
