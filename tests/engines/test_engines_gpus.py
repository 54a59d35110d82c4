"""Snakemake with GPUs that are pretended: the driver lists two, and a CPU does the work."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from miniature import call

pytestmark = pytest.mark.slow

A, B = "GPU-11111111-aaaa-0000-0000-000000000000", "GPU-22222222-bbbb-0000-0000-000000000000"
RUN = "split-digits.er.16.s0"

# Read by each Python at its start. The first job of GPU A fails as a GPU does that falls off the
# bus; in the process that is then asked, PyTorch does refuse it, as there is none.
PRETENDED = f"""
import os
from twf.gpus import devices, slots, visible

visible.version = lambda _: "2.13.0"  # as though PyTorch were built for GPUs
devices._refusal = lambda: None
real = devices.device_for

def device_for(*words):
    with open(os.environ["SEEN"], "a") as seen:
        print(os.environ["CUDA_VISIBLE_DEVICES"], file=seen)
    real(*words)
    import torch
    from twf.jobs.resume import Keeper
    def fall(*_):
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")
    if slots.held().id == "{A}":
        Keeper.pause = fall
    return torch.device("cpu")

devices.device_for = device_for
"""


def test_a_job_whose_gpu_fails_is_done_on_another_by_its_next_attempt(
    fresh: Path, tmp_path: Path, nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.has(nvml.gpu(A), nvml.gpu(B))
    (tmp_path / "sitecustomize.py").write_text(PRETENDED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("TMPDIR", tempfile.mkdtemp(dir=tmp_path))

    said = call(fresh, "snakemake", f"results/demo/runs/{RUN}.parquet", "--cores", "1")
    assert 'Provided resources: gpu=Resource("gpu", 2)' in said
    assert A in said and "CUDA error: unspecified launch failure" in said
    assert "Traceback" not in said
    for log in ("logs/pretrain/letters.log", f"logs/demo/runs/{RUN}.log"):
        assert f"warning: this job did not finish on {A}" in (fresh / log).read_text()
    # pretraining and the run, twice each: none was let see a CPU, or one GPU alone
    assert (tmp_path / "seen").read_text().splitlines() == [f"{A},{B}"] * 4
    assert not list(fresh.glob("states/*/*"))


def test_a_job_of_a_cluster_may_lie_on_a_node_whose_gpus_are_not_for_it(
    fresh: Path, tmp_path: Path, nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.has("NVMLError_NoPermission")
    (tmp_path / "driver/0000:5f:00.0").mkdir(parents=True)
    (tmp_path / "sitecustomize.py").write_text(
        "from pathlib import Path; from twf.gpus import nvidia, visible\n"
        "visible.version = lambda _: '2.13.0'\n"
        f"nvidia.DRIVER = Path({str(tmp_path / 'driver')!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    words = ("snakemake", "data/digits.safetensors", "--cores", "1")
    assert "none of the GPUs can be used" in call(fresh, *words, "-n", fails=True)
    call(fresh, *words, "--mode", "remote")
