"""Whose code runs: that of the folder that is worked in, or another checkout's."""

from __future__ import annotations

import os
from pathlib import Path

import twf
from twf.errors import UserError

OWN_ENVIRONMENT = (
    "`rm -rf .venv; make setup` there makes its own environment; leave the active one "
    "(`deactivate`) and take that: . .venv/bin/activate. With conda: `conda env create --name NAME "
    "--file workflow/envs/environment.yml` there, and `conda activate NAME`"
)


def other_code(folder: Path) -> tuple[Path, str] | None:
    """Where this code is, if `folder` is a checkout with code of its own; and the remedy."""
    own, used = folder / "src/twf", Path(twf.__file__).parent
    if not (own / "__init__.py").exists() or own.samefile(used):
        return None
    named = map(Path, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    by_path = any(path.resolve() == used.parent.resolve() for path in named)
    return used, "unset PYTHONPATH, which names it" if by_path else OWN_ENVIRONMENT


def refuse_other_code(*folders: Path) -> None:
    """Raise `UserError` where the code of this process is not that of the folder it works in.

    That is so in a second checkout while the first one's environment is active, and in a copy of a
    checkout whose environment was copied too. Records would be made by code that they do not name.
    """
    for folder in (Path.cwd(), *folders):
        if (found := other_code(folder)) is not None:
            used, remedy = found
            raise UserError(f"{folder} has code of its own, and this is {used}: {remedy}")
