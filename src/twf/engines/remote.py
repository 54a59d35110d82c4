"""Bringing a study's files from DVC's remote."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
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
    wanted, locked = stages(params, study), _locked()
    if f"runs@{study}" not in locked:
        raise UserError(
            f"{LOCK} has no runs@{study}: whoever has the results of study {study} does `dvc repro "
            f"$(twf plan {study} --stages)` and `dvc push`, and commits {LOCK}"
        )
    _have_remote_verified()
    there = [stage for stage in wanted if stage in locked]
    if _call("dvc", "pull", *there).returncode != 0:
        raise UserError(
            f"dvc pull did not bring all of {', '.join(there)}, for the reason above; the same "
            "command goes on from here. If the remote refused, check your keys; if 'Checkout "
            "failed', an object is missing in the remote or damaged there; if 'unsaved', files "
            "here are in no commit of DVC: move them away, or `dvc commit` them. See "
            "docs/remotes.md"
        )
    plans.write(params, study)
    print(f"study {study} is as in {LOCK}; `twf plan {study}` says what is not as planned")


def _locked() -> dict[str, Any]:
    """The stages of `dvc.lock`; none where there is no such file."""
    try:
        values = yaml.safe_load(LOCK.read_text(encoding="utf-8")) if LOCK.exists() else None
    except yaml.YAMLError:
        raise UserError(
            f"{LOCK} cannot be read, maybe for conflicts of git: take one side (`git checkout "
            f"--ours {LOCK}`, or --theirs), then `dvc repro`"
        ) from None
    return dict((values or {}).get("stages", {}))


def _have_remote_verified() -> None:
    """DVC uses what a remote sends without a check, unless the remote has `verify`: set it here."""
    done = _call("dvc", "config", "--list", stdout=subprocess.PIPE)  # keys too: it is not printed
    config = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    remote = config.get("core.remote")
    if remote is None:
        raise UserError(
            "DVC has no default remote: `dvc remote add --default NAME WHERE`; docs/remotes.md "
            "has the set-up for a folder, S3 and SSH"
        )
    if config.get(f"remote.{remote}.verify") != "true":
        _call("dvc", "remote", "modify", "--local", remote, "verify", "true")


def _call(program: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run an engine of this environment."""
    if find_spec(program) is None:
        raise UserError(f"{program} is not installed here: `make setup`, then `make pull`")
    return subprocess.run(
        [sys.executable, "-m", program, *words], text=True, **options, encoding="utf-8"
    )
