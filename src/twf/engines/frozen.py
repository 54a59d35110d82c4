"""The parameters that a call of Snakemake has planned with, kept for the jobs that it starts.

A study takes hours, and `params.yaml` may be edited meanwhile. Jobs that read it then would mix new
parameters with old ones, under Snakemake's note that they are the old ones: so they read a copy.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import yaml

from twf.errors import UserError
from twf.files import PARAMS, atomic
from twf.study import reading
from twf.study.params import Params

VARIABLE = "TWF_PARAMS"  # the file that commands read where they are not told another


def file(remote: bool) -> Path:
    """What Snakemake is to plan with; in a job of a cluster, what the one that submitted it did."""
    return Path(os.environ.get(VARIABLE, PARAMS)) if remote else PARAMS


def keep(planned: Params, folder: Path) -> None:
    """Have the commands that this process starts read `planned`, as a file in `folder`."""
    text = yaml.safe_dump(planned.model_dump(mode="json", exclude_unset=True), sort_keys=False)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / f"{digest}.yaml"  # one for all who plan with the same
    with atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")
    os.environ[VARIABLE] = str(path)


def require_unchanged(planned: Params, path: Path) -> None:
    """Raise `UserError` where the file that `planned` was read from says something else now."""
    try:
        same = reading.load(path) == planned
    except UserError:
        same = False
    if not same:
        raise UserError(
            f"{path} was changed meanwhile: what was made is of {path} as it was at the start; "
            "call again for what the change asks for"
        )
