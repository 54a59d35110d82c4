"""What jobs whose inputs and outputs lie in an object storage (S3) need beyond their profile."""

from __future__ import annotations

import os
from pathlib import Path

from twf.errors import UserError


def keep_copies_here(copies: Path) -> None:
    """Make `copies` the working folder, under a second name.

    It is where Snakemake keeps local copies of what lies in the storage, deep in `.snakemake`. It
    looks there for what a command made; commands read and write `twf.files`' paths.
    """
    here = Path.cwd()
    if copies.exists() and copies.resolve() == here:
        return
    copies.parent.mkdir(parents=True, exist_ok=True)
    try:
        copies.symlink_to(os.path.relpath(here, copies.parent.resolve()))
    except FileExistsError:
        raise UserError(
            f"{copies} is not this folder, where commands read and write: Snakemake put copies "
            "there for another workflow or another --default-storage-prefix; delete it"
        ) from None
