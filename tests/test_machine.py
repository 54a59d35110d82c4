"""What is known of the machine without PyTorch."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from twf import machine
from twf.errors import UserError
from twf.machine import Gpu

A, B = "GPU-11111111-aaaa-0000-0000-000000000000", "GPU-22222222-bbbb-0000-0000-000000000000"
MIG = "MIG-33333333-cccc-0000-0000-00000000000"
TWO = f"""GPU 0: NVIDIA A100-SXM4-40GB (UUID: {A})
GPU 1: NVIDIA A100-SXM4-40GB (UUID: {B})
"""
CUT = f"""GPU 0: NVIDIA A100-SXM4-40GB (UUID: {A})
  MIG 3g.20gb     Device  0: (UUID: {MIG}0)
  MIG 3g.20gb     Device  1: (UUID: {MIG}1)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: {B})
"""


def test_each_gpu_is_found_and_instances_stand_for_the_one_that_is_cut() -> None:
    name = "NVIDIA A100-SXM4-40GB"
    assert machine.parse("") == []
    assert machine.parse(TWO) == [Gpu(A, name), Gpu(B, name)]
    instance = f"{name} MIG 3g.20gb"
    assert machine.parse(CUT) == [Gpu(f"{MIG}0", instance), Gpu(f"{MIG}1", instance), Gpu(B, name)]


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
    ],
)
def test_the_environment_shows_gpus_as_it_does_to_cuda(shown: str | None, ids: list[str]) -> None:
    assert [gpu.id for gpu in machine.visible(machine.parse(TWO), shown)] == ids


def test_gpus_do_not_count_where_pytorch_cannot_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "listing", lambda: TWO)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for version, count in {"2.13.0": 2, "2.13.0+cu130": 2, "2.13.0+cpu": 0}.items():
        monkeypatch.setattr(machine, "version", lambda _, version=version: version)
        assert len(machine.gpus()) == count


def test_a_device_is_chosen_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: [Gpu(A, "A GPU")])
    assert [machine.kind(word) for word in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(machine, "gpus", list)
    assert [machine.kind(word) for word in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(UserError, match="no CUDA device here"):
        machine.kind("cuda")


def test_the_tool_is_asked_and_its_failure_is_told(tmp_path, monkeypatch, capsys) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{CUT}END\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert machine.listing() == CUT
    tool.write_text("#!/bin/sh\necho no driver\nexit 9\n")
    assert machine.listing() == ""
    assert "nvidia-smi -L failed: no driver" in capsys.readouterr().err


def test_cores_and_memory_are_those_of_this_machine() -> None:
    assert machine.cores() >= 1
    assert machine.free_memory_mib() > 1
    assert machine.cpu_name(3).endswith(", 3 threads")


@pytest.mark.parametrize("copy", [".dvc/tmp/exps/tmpab12", ".dvc/tmp/exps/standalone/tmpab12"])
def test_a_copy_that_dvc_made_is_refused(tmp_path, monkeypatch, copy):
    machine.refuse_copies_by_dvc()  # not the project itself
    (tmp_path / copy).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / copy)
    with pytest.raises(UserError, match="leave --temp and --queue away"):
        machine.refuse_copies_by_dvc()


def test_a_process_is_told_to_stop_when_its_parent_is_killed(tmp_path: Path) -> None:
    child = (
        "import signal, sys, time; from pathlib import Path; from twf import machine\n"
        "told = lambda *_: (Path('told').touch(), sys.exit())\n"
        "signal.signal(signal.SIGTERM, told); machine.stop_with_parent()\n"
        "Path('ready').touch(); time.sleep(60)"
    )
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    wait_for(tmp_path / "ready")
    assert not (tmp_path / "told").exists()
    parent.kill()
    parent.wait()
    wait_for(tmp_path / "told")


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"in vain: {path.name}"
        time.sleep(0.01)
