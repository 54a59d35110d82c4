"""What the tests of data share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds 1 MiB and no more: a file system of its own."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only a user who may mount has a disk to fill")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
