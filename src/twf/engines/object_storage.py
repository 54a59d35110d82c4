"""What jobs whose inputs and outputs lie in an object storage (S3) need beyond their profile."""

from __future__ import annotations

import os
from pathlib import Path

from twf.errors import UserError


def keep_copies_here(copies: Path) -> None:
    """Make `copies`, where Snakemake keeps local copies of the storage, a link to this folder.

    So Snakemake finds what commands write, and they find what it has copied, at `twf.files`' paths.
    """
    here = Path.cwd()
    if copies.exists() and copies.resolve() == here:
        return
    copies.parent.mkdir(parents=True, exist_ok=True)
    try:
        copies.symlink_to(os.path.relpath(here, copies.parent.resolve()))
    except FileExistsError:
        raise UserError(
            f"{copies} is not a link to this folder: Snakemake put copies there for another "
            "workflow or another --default-storage-prefix; delete it"
        ) from None
