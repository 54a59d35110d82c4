"""Where the project lies, what its pyproject.toml says, and what git keeps of it."""

import subprocess
import tomllib
from pathlib import Path

from packaging.specifiers import SpecifierSet

PROJECT = Path(__file__).resolve().parent.parent
METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
_MINORS = (f"3.{minor}" for minor in range(100))
PYTHONS = list(SpecifierSet(METADATA["requires-python"]).filter(_MINORS))  # supported: 3.1, 3.2 ...


def kept(pattern: str) -> list[Path]:
    """The files in git that a pattern fits."""
    listed = subprocess.run(
        ["git", "ls-files", pattern], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return [PROJECT / line for line in listed.stdout.splitlines()]
