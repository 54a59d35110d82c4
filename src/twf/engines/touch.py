"""Bringing a study's files from DVC's remote, and telling Snakemake that they are up to date.

DVC compares contents and Snakemake modification times, which a download sets anew. `touch` is
`snakemake --touch`, which would take stale files as well, for files whose contents are those of
`dvc.lock` and whose records are those of the plan.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from twf import files
from twf.engines.stages import stages
from twf.errors import UserError
from twf.results import status
from twf.study import expand
from twf.study.params import Params

LOCK = Path("dvc.lock")
SHOWN = 5  # differences that a message names


def pull(params: Params, study: str) -> None:
    """Bring a study's data, checkpoints and results from DVC's default remote, and `touch` them.

    Raises:
        UserError: without such a remote, if something does not come, and as `touch`.
    """
    stage = _locked_stage(params, study)
    _have_remote_verified()
    if _call("dvc", "pull", "--with-deps", stage).returncode != 0:
        raise UserError(
            f"dvc pull did not bring all of {stage}, for the reason above; the same command goes "
            "on from here. If the remote refused, check your keys; if 'Checkout failed', an object "
            "is missing in the remote or damaged there; if 'unsaved', files here are in no commit "
            "of DVC: move them away, or `dvc commit` them. See docs/remotes.md"
        )
    touch(params, study)


def touch(params: Params, study: str) -> None:
    """Have both engines take a study's files as up to date, if contents and records allow it.

    Raises:
        UserError: if a file or `params.yaml` is not as in `dvc.lock`, if a record is not the
            plan's, if Snakemake fails. It names what differs; nothing was touched.
    """
    stage = _locked_stage(params, study)
    make = f"`snakemake --cores all {files.report_file(study)}`, then `dvc repro {stage}`"
    if changes := _changes(stage):
        raise UserError(
            f"nothing was touched: study {study} differs from {LOCK}:\n{_listed(changes)}\n"
            f"To have the files of {LOCK}: undo your changes of params.yaml, then "
            f"`dvc checkout --force --with-deps {stage}`; if files still differ, DVC's cache is "
            "damaged: delete .dvc/cache/files and pull again. To have what your changes give: "
            f"{make}"
        )
    if missing := _not_planned(params, study):
        raise UserError(
            f"nothing was touched: study {study} is not as planned:\n{_listed(missing)}\n"
            f"Restore the params.yaml of these records, or make them again: {make}"
        )
    # without --forceall Snakemake would note some of the files alone
    words = ("--touch", "--forceall", "--cores", "1", str(files.report_file(study)), "--quiet")
    done = _call("snakemake", *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise UserError(
            f"{done.stdout.strip()}\nSnakemake could not note that study {study} is up to date, "
            f"for the reason above; then `twf touch {study}`"
        )
    print(f"study {study} is as in {LOCK} and as planned: neither engine has anything to do")


def _locked_stage(params: Params, study: str) -> str:
    """The stage of a study's report, which `dvc.lock` must have."""
    params.named_study(study)
    stage = f"report@{study}"
    runs = f"runs-{study}"
    needed = stages(params).get(runs, {}).get("deps", [])
    known = _read(files.STAGES).get("stages", {}).get(runs, {}).get("deps", [])
    if forgotten := [path for path in needed if path not in known]:
        raise UserError(
            f"{files.STAGES} lacks {', '.join(forgotten)}, which study {study} needs: `twf stages` "
            f"writes it; then {stage} is to be made, locked and pushed with it"
        )
    locked = _read(LOCK)
    if stage not in locked.get("stages", {}):
        raise UserError(
            f"{LOCK} has no {stage}: whoever has the results of study {study} does `dvc repro "
            f"{stage}` and `dvc push --with-deps {stage}`, and commits {LOCK}"
        )
    return stage


def _read(path: Path) -> dict[str, Any]:
    """One of DVC's files; empty where there is none."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    except yaml.YAMLError:
        raise UserError(
            f"{path} cannot be read, maybe for conflicts of git: take one side (`git checkout "
            f"--ours {path}`, or --theirs), then `dvc repro`"
        ) from None
    return found if isinstance(found, dict) else {}


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


def _changes(stage: str) -> list[str]:
    """What differs from `dvc.lock`, by content.

    DVC notes a download's checksum without computing it, so it gets a folder without its notes.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = _call(
            *("dvc", "status", "--json", "--with-deps", stage),
            stdout=subprocess.PIPE,
            env=os.environ | {"DVC_SITE_CACHE_DIR": folder},
        )
    if done.returncode != 0:
        raise UserError(f"`dvc status {stage}` failed, for the reason above; then `twf touch`")
    return _leaves(json.loads(done.stdout))


def _leaves(entry: Any, path: str = "") -> list[str]:
    """A line for each leaf of nested dictionaries and lists, with the keys that lead to it."""
    if isinstance(entry, list):
        return [line for item in entry for line in _leaves(item, path)]
    if isinstance(entry, dict):
        return [line for key, item in entry.items() for line in _leaves(item, f"{path}{key}: ")]
    return [f"{path}{entry}"]


def _not_planned(params: Params, study: str) -> list[str]:
    """The data, checkpoints and records of a study that are missing, or not the plan's.

    Where all records are there, as git may have them, no data and no network need be.
    """
    found = status.of_plan(params, expand(params, study))
    runs = [(f"run {name}", run["status"]) for name, run in found["runs"].items()]
    fine = {"done"} if any(state != "done" for _, state in runs) else {"done", "to do"}
    states = [(f"data {name}", state) for name, state in found["data"].items()]
    states += [(f"source {name}", state) for name, state in found["sources"].items()]
    missing = [f"{name}: {state}" for name, state in states if state not in fine]
    return missing + [f"{name}: {state}" for name, state in runs if state != "done"]


def _listed(lines: list[str]) -> str:
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n".join(f"  {line}" for line in [*lines[:SHOWN], *more])


def _call(program: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run an engine of this environment."""
    if find_spec(program) is None:
        raise UserError(f"{program} is not installed here: `make setup`, then `make pull`")
    return subprocess.run(
        [sys.executable, "-m", program, *words], text=True, **options, encoding="utf-8"
    )
