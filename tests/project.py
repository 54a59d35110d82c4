"""Where the project lies, and what git keeps of it."""

import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def kept(pattern: str) -> list[Path]:
    """The files in git that a pattern fits."""
    listed = subprocess.run(
        ["git", "ls-files", pattern], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return [PROJECT / line for line in listed.stdout.splitlines()]
