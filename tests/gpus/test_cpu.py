"""What is known of a machine's CPU, and how a process uses its memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

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
    """Told to return all of 1 MiB or more at once, glibc does; by itself that depends."""
    returning = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, env=returning, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 10_000
    assert after < 100


@pytest.mark.parametrize(
    ("cpuinfo", "gains"),
    [
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile", True),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_bf16", False),  # measured
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f avx512_bf16", True),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2", False),
        ("processor\t: 0\nFeatures\t: fp asimd bf16", False),  # ARM tells no model either
    ],
)
def test_bfloat16_is_for_cpus_that_gain_by_it(tmp_path, monkeypatch, cpuinfo, gains):
    (tmp_path / "cpuinfo").write_text(f"{cpuinfo}\n")
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    assert cpu.multiplies_bfloat16() is gains
    assert cpu.cpu_name(2) == f"{platform.machine()}, 2 threads"
