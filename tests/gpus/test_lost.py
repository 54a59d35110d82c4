"""Marks of GPUs that failed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from twf import errors
from twf.errors import GpuError
from twf.gpus import lost
from twf.gpus.nvidia import Gpu

A, B = Gpu("GPU-a", "A GPU"), Gpu("MIG-GPU-b/1/0", "A part of a GPU")


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that was just started; no warning was given yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(lost, "BOOT", tmp_path / "boot_id")
    lost.BOOT.write_text("first\n")
    errors.warn.cache_clear()


def test_a_look_makes_no_folder(tmp_path) -> None:
    assert lost.marks() == {} and lost.usable([A, B]) == [A, B]
    assert [path.name for path in tmp_path.iterdir()] == ["boot_id"]


def test_a_gpu_that_failed_is_told_and_left_out(capsys) -> None:
    path = lost.mark(B, "CUDA error: unknown error")
    assert lost.usable([A, B]) == lost.usable([A, B]) == [A]
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("warning: A part of a GPU MIG-GPU-b/1/0 failed on 20")
    assert "(CUDA error: unknown error): it is not used until the machine restarts, or " in said
    assert str(path) in said


@pytest.mark.parametrize("how", ["restart", "delete", "damage"])
def test_it_is_used_again_after_a_restart_or_without_its_mark(how: str) -> None:
    path = lost.mark(A, "CUDA error")
    if how == "restart":
        lost.BOOT.write_text("second\n")
    elif how == "delete":
        path.unlink()
    else:
        path.write_text("")
    assert lost.marks() == {} and lost.usable([A]) == [A]


def test_where_all_failed_it_is_an_error_that_names_them_and_no_cpu() -> None:
    paths = [lost.mark(A, "it fell"), lost.mark(B, "it burnt")]
    with pytest.raises(GpuError) as refused:  # another node of a cluster may have one
        lost.usable([A, B])
    said = str(refused.value)
    assert said.startswith("no GPU is left: A GPU GPU-a failed on ")
    for part in ("(it fell)", "(it burnt)", *map(str, paths), "CUDA_VISIBLE_DEVICES= before"):
        assert part in said
    assert lost.usable([]) == []  # none was to be used
