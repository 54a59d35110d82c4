"""What is known of a machine's CPU, and how a process uses its memory."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest

from twf.gpus import cpu

FAULTS = """
import resource, torch
from twf.gpus import cpu

def faults():  # the pages that are fetched anew in the last ten steps, which take 8192 each
    for step in range(40):
        if step == 30:  # the heap has grown to what the steps need
            begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        maps = [torch.zeros(2**20) for _ in range(8)]
        del maps
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin

print(faults())
cpu.keep_freed_memory()
print(faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the allocator is not glibc's")
def test_memory_that_was_freed_is_kept_for_the_next_step():
    """Whether glibc returns memory by itself depends on what else lies in the heap.

    Told to return all of 1 MiB or more at once, it does.
    """
    returning = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
    words = [sys.executable, "-c", FAULTS]
    done = subprocess.run(words, env=returning, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 10_000
    assert after < 100


@pytest.mark.parametrize(
    ("vendor", "flags", "gains"),
    [
        ("GenuineIntel", "avx512f avx512_bf16 amx_bf16 amx_tile", True),
        ("GenuineIntel", "avx512f avx512_bf16", False),  # measured: slower than in float32
        ("AuthenticAMD", "avx512f avx512_bf16", True),
        ("AuthenticAMD", "avx2", False),
    ],
)
def test_bfloat16_is_for_cpus_that_gain_by_it(tmp_path, monkeypatch, vendor, flags, gains):
    (tmp_path / "cpuinfo").write_text(f"vendor_id\t: {vendor}\nflags\t\t: fpu {flags}\n")
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    assert cpu.multiplies_bfloat16.__wrapped__() is gains


def test_arm_tells_no_model_of_its_processor(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd bf16\n")
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    assert cpu.cpu_name(2) == f"{platform.machine()}, 2 threads"
    assert cpu.multiplies_bfloat16.__wrapped__() is False


def test_without_linux_a_processor_and_its_memory_are_what_python_tells(macos):
    assert cpu.cpu_name(2) == f"{platform.machine()}, 2 threads"
    assert cpu.cores() == os.cpu_count()
    assert cpu.multiplies_bfloat16() is False
    cpu.keep_freed_memory()
    cpu.forget_peak_memory()


@pytest.mark.parametrize(("system", "mib"), [("linux", 3 * 2**10), ("darwin", 3)])
def test_a_peak_of_memory_is_told_in_kib_or_on_macos_in_bytes(monkeypatch, system, mib):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_maxrss=3 * 2**20))
    assert cpu.peak_memory_mib() == mib
