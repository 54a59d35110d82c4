"""Jobs share GPUs by slots, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from twf.errors import UserError
from twf.gpus import slots
from twf.gpus.nvidia import Gpu

A, B = Gpu("GPU-a", "A GPU"), Gpu("GPU-b", "A GPU")
JOB = """
import subprocess, sys
from twf.gpus import slots
from twf.gpus.nvidia import Gpu
slots.POLL = 0.05
gpus = [Gpu(name, "A GPU") for name in sys.argv[2:]]
print(slots.take(gpus, int(sys.argv[1])).id, flush=True)
# it outlives a job that is killed, as the one of Weights & Biases may
subprocess.Popen(["cat"], stdout=subprocess.DEVNULL)
sys.stdin.read()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """`start(slots, *gpus)`: a job that takes a slot, prints its GPU, and ends with its input."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    jobs = []

    def job(slots: int, *gpus: Gpu) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", JOB, str(slots), *(gpu.id for gpu in gpus)]
        pipe = subprocess.PIPE
        jobs.append(subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return jobs[-1]

    yield job
    for process in jobs:
        process.kill()
        process.communicate()


def own(job: subprocess.Popen[str]) -> str:
    """The GPU that a job has, once it has one."""
    return job.stdout.readline().strip()


def waits(job: subprocess.Popen[str]) -> bool:
    """Whether a job says that it waits."""
    return job.stderr.readline().startswith("waiting for a GPU: 1 of your jobs on each of 1")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, None])
def test_a_slot_is_free_again_however_its_job_ends(start: Start, number: int | None) -> None:
    first = start(1, A)
    assert own(first) == A.id
    second = start(1, A)
    assert waits(second)
    if number is None:
        first.communicate()  # its input ends, and so does it
    else:
        first.send_signal(number)
    assert own(second) == A.id


def test_jobs_spread_over_gpus_and_then_share_them(start: Start) -> None:
    jobs, seen = [], []
    for count in range(1, 5):
        jobs.append(start(2, A, B))
        seen.append(own(jobs[-1]))
        assert max(Counter(seen).values()) == (count + 1) // 2
    jobs[seen.index(B.id)].communicate()
    assert own(start(2, A, B)) == B.id


def test_jobs_that_start_together_do_not_crowd(start: Start) -> None:
    assert Counter(own(job) for job in [start(2, A, B) for _ in range(4)]) == {A.id: 2, B.id: 2}


def test_a_process_keeps_the_slot_it_has(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots, "_held", [])
    assert slots.take([A, B], 1) == slots.take([A, B], 1) == A
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_not_ones_own_is_refused(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots, "_held", [])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"twf-gpus-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is not a folder of yours"):
        slots.take([A], 1)


def test_jobs_take_the_gpus_that_are_used_least(start: Start, nvml) -> None:
    gpus = [Gpu(f"GPU-{letter}", "A GPU") for letter in "abcd"]
    nvml.has(
        nvml.gpu("GPU-a", memory=(20, 40)),  # half of its memory
        nvml.gpu("GPU-b", memory=(39, 40), busy=99),  # 0.025, and 0.99 of its time
        nvml.gpu("GPU-c", memory=(80, 80), busy=10),  # 0.1 of its time
        nvml.gpu("GPU-d", memory=(36, 40), busy=10),  # 0.1 and 0.1
    )
    seen = [own(start(2, *gpus)) for _ in range(4)]
    assert seen == ["GPU-c", "GPU-d", "GPU-a", "GPU-b"]
    assert own(start(2, *gpus)) == "GPU-c"  # each has one job of ours, so begin again


def test_a_gpu_without_room_is_left_to_others_though_ours_share_another(start: Start, nvml) -> None:
    crowded = nvml.gpu(A.id, memory=(9999, 40000))
    busy = nvml.gpu(B.id, memory=(10000, 40000), busy=100)
    nvml.has(crowded, busy)
    assert [own(start(2, A, B)) for _ in range(2)] == [B.id, B.id]
    third = start(2, A, B)
    assert "25% of its memory" in third.stderr.readline()
    nvml.has(nvml.gpu(A.id), busy)
    assert own(third) == A.id


def test_where_the_usage_is_not_known_jobs_spread_by_their_number(start: Start, nvml) -> None:
    nvml.has(nvml.gpu(A.id, memory="NVMLError_NotSupported"), "NVMLError_GpuIsLost")
    assert [own(start(2, A, B)) for _ in range(3)] == [A.id, B.id, A.id]


def test_waiting_for_a_slot_does_not_ask_the_driver(start: Start, nvml) -> None:
    assert own(start(1, A)) == A.id
    assert waits(start(1, A))
    assert nvml.asked() == 1
