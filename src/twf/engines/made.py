"""What Snakemake has found up to date, noted for DVC's stages, each of which would ask it again.

A start takes seconds, and a study has many stages.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from twf.errors import UserError
from twf.files import PARAMS, atomic, sha256

NOTE = Path(".snakemake/made.json")


def note(paths: Iterable[str | Path]) -> None:
    """Note the files that a call of Snakemake has looked at and made, and the state of each.

    Those of earlier calls stay noted if none of them has changed since.
    """
    noted = _unchanged() | states(paths)
    with atomic(NOTE) as partial:
        partial.write_text(json.dumps(noted), encoding="utf-8")


def states(paths: Iterable[str | Path]) -> dict[str, list[int] | str | None]:
    """The state of each file: `None` of one that is not there."""
    return {str(path): _state(path) for path in paths}


def is_made(targets: list[str]) -> bool:
    """Whether calls of Snakemake made them, and nothing that these looked at has changed."""
    noted = _unchanged()
    return all(noted.get(target) for target in targets)


def _unchanged() -> dict[str, list[int] | str | None]:
    """The note; empty where anything in it has changed."""
    try:
        noted = json.loads(NOTE.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(noted, dict):
        return {}
    return noted if all(_state(path) == state for path, state in noted.items()) else {}


def make(targets: list[str]) -> None:
    """Become Snakemake, which makes the targets; do nothing where they are made.

    Raises `UserError` where it is not installed.
    """
    if is_made(targets):
        return
    snakemake = Path(sys.executable).with_name("snakemake")
    if not snakemake.exists():
        raise UserError("snakemake is not installed here: `make setup`")
    quiet = ("--quiet", "host", "progress", "reason")
    os.execv(snakemake, [str(snakemake), *targets, "--cores", "all", *quiet])


def _state(path: str | Path) -> list[int] | str | None:
    """What tells a file from an earlier one; of params.yaml its content, all that anything reads.

    So a change of it that is taken back, by git for example, is none.
    """
    try:
        found = os.stat(path)
        return sha256(PARAMS) if Path(path) == PARAMS else [found.st_mtime_ns, found.st_size]
    except FileNotFoundError:
        return None
