"""What is known of the machine without PyTorch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from processes import until

from twf import errors
from twf.engines import environment
from twf.errors import UserError
from twf.gpus import cpu, lost, nvidia, visible
from twf.gpus.nvidia import Gpu

A, B = "GPU-11111111-aaaa-0000-0000-000000000000", "GPU-22222222-bbbb-0000-0000-000000000000"
C = "GPU-33333333-cccc-0000-0000-000000000000"
TWO = [Gpu(A, "A GPU"), Gpu(B, "A GPU")]
LISTING = f"GPU 0: A GPU (UUID: {A})\nGPU 1: A GPU (UUID: {B})\n"


@pytest.mark.parametrize(
    ("shown", "ids"),
    [
        (None, [A, B]),
        ("", []),
        ("-1", []),
        ("1", [B]),
        ("1,0", [B, A]),
        ("0, 1", [A, B]),
        ("0,0", [A]),
        ("0,7,1", [A]),  # as for CUDA: what follows a wrong one does not count
        (B, [B]),
        ("GPU-2222", [B]),
        ("GPU", []),  # two of them
        (f"{C},{B}", [B]),  # one that is gone
        (f"GPU-,{B}", []),
    ],
)
def test_the_environment_shows_gpus_as_it_does_to_cuda(shown: str | None, ids: list[str]) -> None:
    assert [gpu.id for gpu in visible.visible(TWO, shown)] == ids


@pytest.fixture
def two_gpus(nvidia_smi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`nvidia-smi` lists two GPUs, and PyTorch is built for them; no warning was given yet."""
    nvidia_smi.lists(LISTING)
    monkeypatch.setattr(visible, "version", lambda _: "2.13.0")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(nvidia, "DRIVER", tmp_path / "gpus")
    errors.warn.cache_clear()
    return nvidia_smi


def test_gpus_do_not_count_where_pytorch_cannot_use_them(two_gpus, monkeypatch) -> None:
    for version, found in {"2.13.0": TWO, "2.13.0+cu130": TWO, "2.13.0+cpu": []}.items():
        monkeypatch.setattr(visible, "version", lambda _, version=version: version)
        assert visible.gpus() == found


def test_a_gpu_that_is_gone_is_told_once_and_not_used(two_gpus, monkeypatch, capsys) -> None:
    unable = "Unable to determine the device handle for GPU1: 0000:5F:00.0: Unknown Error"
    two_gpus.lists(LISTING.splitlines()[0], complaint=unable, status=15)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{B},{A}")
    assert visible.gpus() == visible.gpus() == TWO[:1]
    assert capsys.readouterr().err == (
        f"warning: nvidia-smi -L says: {unable}; the GPUs that it lists are used\n"
        f"warning: {B} of CUDA_VISIBLE_DEVICES is not there, and not used\n"
    )


def test_who_asks_for_gpus_gets_no_cpu_in_their_place(two_gpus, monkeypatch) -> None:
    two_gpus.lists("", complaint="no driver", status=9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", A)
    with pytest.raises(UserError, match=f"says: no driver; {A} of CUDA_VISIBLE_DEVICES is not the"):
        visible.kind("auto")
    assert visible.kind("cpu") == "cpu"
    for word in ("", "-1", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", word)
        assert visible.kind("auto") == "cpu"


def test_a_number_without_a_gpu_is_a_mistake_where_there_are_gpus(two_gpus, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with pytest.raises(UserError, match="can be used: 2 of CUDA_VISIBLE_DEVICES is not there"):
        visible.kind("auto")
    two_gpus.lists("")
    assert visible.kind("auto") == "cpu"


def test_a_tool_without_a_gpu_is_told_and_one_without_its_gpus_is_an_error(
    two_gpus, tmp_path, capsys
) -> None:
    two_gpus.lists("No devices were found\n", status=6)
    assert visible.kind("auto") == "cpu"
    assert "No devices were found; no GPU is used" in capsys.readouterr().err
    (tmp_path / "gpus/0000:5f:00.0").mkdir(parents=True)
    with pytest.raises(UserError, match=r"No devices were found\. Mend the driver"):
        visible.kind("auto")


def test_a_gpu_that_failed_does_not_count(two_gpus, capsys) -> None:
    lost.mark(TWO[0], "CUDA error: unknown error")
    assert visible.gpus() == TWO[1:]
    assert f"{A} failed on" in capsys.readouterr().err


def test_a_device_is_chosen_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "gpus", lambda: [Gpu(A, "A GPU")])
    assert [visible.kind(word) for word in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(visible, "gpus", list)
    assert [visible.kind(word) for word in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(UserError, match="no CUDA device here"):
        visible.kind("cuda")


def test_cores_and_memory_are_those_of_this_machine() -> None:
    assert cpu.cores() >= 1
    assert cpu.free_memory_mib() > 1
    assert cpu.cpu_name(3).endswith(", 3 threads")


@pytest.mark.parametrize("copy", [".dvc/tmp/exps/tmpab12", ".dvc/tmp/exps/standalone/tmpab12"])
def test_a_copy_that_dvc_made_is_refused(tmp_path, monkeypatch, copy):
    environment.refuse_copies_by_dvc()  # not the project itself
    (tmp_path / copy).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / copy)
    with pytest.raises(UserError, match="leave --temp and --queue away"):
        environment.refuse_copies_by_dvc()


@pytest.mark.parametrize("name", ["a{study}b", "}"])
def test_a_folder_whose_braces_snakemake_would_fill_is_refused(tmp_path, monkeypatch, name):
    environment.refuse_braces()  # not this one
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(UserError, match="rename that folder"):
        environment.refuse_braces()


def test_a_process_is_told_to_stop_when_its_parent_is_killed(tmp_path: Path) -> None:
    child = (
        "import signal, sys, time; from pathlib import Path; from twf.engines import environment\n"
        "told = lambda *_: (Path('told').touch(), sys.exit())\n"
        "signal.signal(signal.SIGTERM, told); environment.stop_with_parent()\n"
        "Path('ready').touch(); time.sleep(60)"
    )
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    until((tmp_path / "ready").exists, "the child")
    assert not (tmp_path / "told").exists()
    parent.kill()
    parent.wait()
    until((tmp_path / "told").exists, "the signal")
