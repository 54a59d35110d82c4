"""Bringing a study's files from DVC's remote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from twf.engines import plans
from twf.errors import UserError
from twf.study import expand, needed_data
from twf.study.params import Params

LOCK = Path("dvc.lock")


def stages(params: Params, study: str) -> list[str]:
    """DVC's stages of a study: its data, its networks, its runs and its report."""
    plan = expand(params, study)
    return [
        *(f"data@{name}" for name in needed_data(params, plan)),
        *(f"pretrain@{name}" for name in plan.sources),
        f"runs@{study}",
        f"report@{study}",
    ]


def pull(params: Params, study: str) -> None:
    """Bring a study's data, checkpoints and results from DVC's default remote, and write its plans.

    Raises:
        UserError: without such a remote, without anything of the study in `dvc.lock`, or if
            something does not come.
    """
    locked = yaml.safe_load(LOCK.read_text(encoding="utf-8")) if LOCK.exists() else {}
    wanted = [stage for stage in stages(params, study) if stage in locked.get("stages", {})]
    if f"runs@{study}" not in wanted:
        raise UserError(
            f"{LOCK} has no runs@{study}: whoever has the results of study {study} does `dvc repro "
            f"$(twf plan {study} --stages)` and `dvc push`, and commits {LOCK}"
        )
    remote = _dvc("config", "core.remote", stdout=subprocess.PIPE).stdout.strip()
    if not remote:
        raise UserError(
            "DVC has no default remote: `dvc remote add --default NAME WHERE`; docs/remotes.md "
            "has the set-up for a folder, S3 and SSH"
        )
    # else DVC uses what a remote sends without a check
    _dvc("remote", "modify", "--local", remote, "verify", "true")
    if _dvc("pull", *wanted).returncode != 0:
        raise UserError(
            f"dvc pull did not bring all of {', '.join(wanted)}, for the reason above; the same "
            "command goes on from here. See docs/remotes.md"
        )
    plans.write(params, study)
    print(f"study {study} is as in {LOCK}; `twf plan {study}` says what is not as planned")


def _dvc(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Call the DVC of this environment."""
    words = (sys.executable, "-m", "dvc", *words)
    return subprocess.run(words, text=True, encoding="utf-8", **options)
