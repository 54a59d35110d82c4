"""The CPU and the main memory of this machine, where systems differ. No torch here."""

import ctypes
import platform
import re
import resource
import sys
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")  # only Linux has it
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's <malloc.h>


def cpu_name(threads: int) -> str:
    """The processor's model, or its kind where none is told, as on ARM; with the threads in use."""
    match = re.search(r"^model name\s*: *(.*\S)", _cpuinfo(), flags=re.M)
    model = match[1] if match else platform.machine()
    return f"{model}, {threads} thread{'s' if threads > 1 else ''}"


def multiplies_bfloat16() -> bool:
    """Whether bfloat16 speeds up products: by AMX, or by AVX-512 on AMD, which has the units.

    On Intel without AMX, a step takes 1.2 to 1.4 times as long as in float32.
    """
    flags = set(_cpuinfo().split())
    return "amx_bf16" in flags or {"avx512_bf16", "AuthenticAMD"} <= flags


def _cpuinfo() -> str:
    return CPUINFO.read_text(encoding="utf-8") if CPUINFO.exists() else ""


def keep_freed_memory() -> None:
    """Let glibc keep what a step frees: the next step would fetch and zero each page anew."""
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def peak_memory_mib() -> float:
    """The most main memory that this process held at once."""
    unit = 1 if sys.platform == "darwin" else 2**10  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
