"""Snakemake with GPUs that are pretended: `nvidia-smi` lists two, and a CPU does the work."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from miniature import call, checkout

pytestmark = pytest.mark.slow

A, B = "GPU-11111111-aaaa-0000-0000-000000000000", "GPU-22222222-bbbb-0000-0000-000000000000"
RUN = "split-digits.er.16.s0"

# Read by each Python at its start. The first job of GPU A fails as a GPU does that falls off the
# bus; in the process that is then asked, PyTorch does refuse it, as there is none.
PRETENDED = f"""
import os
from twf.gpus import devices, slots, visible

visible.version = lambda _: "2.13.0"  # as though PyTorch were built for GPUs

def device_for(name, threads, gpu_slots, deterministic):
    with open(os.environ["SEEN"], "a") as seen:
        print(os.environ["CUDA_VISIBLE_DEVICES"], file=seen)
    gpu = slots.take(visible.gpus_for(name), gpu_slots)
    import torch
    from twf.jobs.resume import Keeper
    def fall(*_):
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")
    if gpu.id == "{A}":
        Keeper.pause = fall
    return torch.device("cpu")

devices.device_for = device_for
"""


def test_a_job_whose_gpu_falls_is_done_on_another_which_alone_is_used_from_then_on(
    tmp_path: Path, nvidia_smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi.lists(f"GPU 0: A GPU (UUID: {A})\nGPU 1: A GPU (UUID: {B})\n")
    (tmp_path / "sitecustomize.py").write_text(PRETENDED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("TMPDIR", tempfile.mkdtemp(dir=tmp_path))
    project = tmp_path / "project"
    checkout(project)
    words = ("snakemake", f"results/demo/runs/{RUN}.parquet", "--cores", "1")

    said = call(project, *words)
    assert 'Provided resources: gpu=Resource("gpu", 2)' in said
    assert f"error: A GPU {A} does not compute any more (CUDA error: unspecified launch" in said
    assert "Traceback" not in said
    for log in ("logs/pretrain/letters.log", f"logs/demo/runs/{RUN}.log"):
        assert f"warning: A GPU {A} failed on " in (project / log).read_text()
    # pretraining twice, then the run: none was let see a CPU, or another GPU in place of the first
    assert (tmp_path / "seen").read_text().splitlines() == [f"{A},{B}"] * 3

    (project / f"results/demo/runs/{RUN}.parquet").unlink()
    assert 'Provided resources: gpu=Resource("gpu", 1)' in call(project, *words)
    assert (tmp_path / "seen").read_text().splitlines()[3:] == [B]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", A)
    assert f"no GPU is left: A GPU {A} failed on " in call(project, *words, "-n", fails=True)


def test_a_job_of_a_cluster_may_lie_on_a_node_whose_gpus_are_not_for_it(
    tmp_path: Path, nvidia_smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi.lists("No devices were found\n", status=6)
    (tmp_path / "driver/0000:5f:00.0").mkdir(parents=True)
    (tmp_path / "sitecustomize.py").write_text(
        "from pathlib import Path; from twf.gpus import nvidia, visible\n"
        "visible.version = lambda _: '2.13.0'\n"
        f"nvidia.DRIVER = Path({str(tmp_path / 'driver')!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    project = tmp_path / "project"
    checkout(project)
    words = ("snakemake", "data/digits.safetensors", "--cores", "1")
    assert "none of the GPUs can be used" in call(project, *words, "-n", fails=True)
    call(project, *words, "--mode", "remote")
