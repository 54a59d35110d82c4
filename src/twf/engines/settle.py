"""What DVC brings: checked, and then up to date for Snakemake too.

DVC goes by contents and Snakemake by modification times, which a download sets anew. `settle` has
Snakemake take the files as they are, but only where they are what `dvc.lock` says and the records
are the plan's: it would take stale ones as well.
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
from twf.errors import UserError
from twf.results import status
from twf.study import expand
from twf.study.params import Params

LOCK = Path("dvc.lock")
HELP = "docs/remotes.md"
SHOWN = 5  # differences of one kind that a message names


def pull(params: Params, study: str) -> None:
    """Bring a study's data, checkpoints and results from DVC's default remote, and `settle` them.

    Raises:
        UserError: without such a remote, where it does not verify what it brings, where something
            does not come, and where `settle` does.
    """
    stage = _locked_stage(params, study)
    _require_verifying_remote()
    if _dvc("pull", "--with-deps", stage).returncode != 0:
        raise UserError(
            f"dvc pull did not bring all of {stage}, for the reason above; what came is kept, and "
            "the same command goes on from there. Where the remote refused, mend your keys. "
            "'Checkout failed' means that an object is missing in the remote, or damaged there "
            f"and therefore not used. {HELP} has the remedies"
        )
    settle(params, study)


def settle(params: Params, study: str) -> None:
    """Have both engines take a study's files as up to date, where contents and records say so.

    Raises:
        UserError: where a file is not what `dvc.lock` says, or `params.yaml` is not; where a record
            is not the plan's; where Snakemake cannot note it. It names what differs, and the
            remedy; nothing was touched then.
    """
    stage = _locked_stage(params, study)
    report = files.report_file(study)
    if changes := _changes(stage):
        raise UserError(
            f"study {study} is not as {LOCK} has it, nothing was settled:\n{_listed(changes)}\n"
            f"To have the files of {LOCK}: undo your changes of params.yaml, then "
            f"`dvc checkout --force --with-deps {stage}`. If files still differ, DVC's cache is "
            "damaged: delete .dvc/cache/files, and pull again. To keep your changes: `snakemake "
            f"--cores all {report}` makes what they ask for, then `dvc repro {stage}`"
        )
    if missing := _not_planned(params, study):
        raise UserError(
            f"records of study {study} are not the plan's, nothing was settled:\n"
            f"{_listed(missing)}\n"
            f"`twf plan {study}` has them all. Take the params.yaml that they were made with, or "
            f"make them: `snakemake --cores all {report}`, then `dvc repro {stage}`"
        )
    # without --forceall it would note some of the files alone
    words = ["--touch", "--forceall", "--cores", "1", str(report), "--quiet"]
    done = _call("snakemake", *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise UserError(
            f"{done.stdout.strip()}\nSnakemake could not note that study {study} is up to date; "
            f"mend what it says above, then `twf settle {study}`"
        )
    print(f"study {study} is as {LOCK} and the plan have it: neither engine has anything to do")


def _locked_stage(params: Params, study: str) -> str:
    """The stage of a study's report, which `dvc.lock` must have."""
    params.named_study(study)
    stage = f"report@{study}"
    locked = yaml.safe_load(LOCK.read_text()) if LOCK.exists() else {}
    if stage not in locked.get("stages", {}):
        raise UserError(
            f"{LOCK} has no {stage}: whoever has the results of study {study} does `dvc repro "
            f"{stage}` and `dvc push --with-deps {stage}`, and commits {LOCK}"
        )
    return stage


def _require_verifying_remote() -> None:
    """DVC takes what comes from a remote unseen, unless the remote has `verify`."""
    done = _dvc("config", "--list", stdout=subprocess.PIPE)  # keys too: it is not printed
    config = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    remote = config.get("core.remote")
    if remote is None:
        raise UserError(
            "DVC has no default remote: `dvc remote add --default NAME WHERE`; "
            f"{HELP} has the set-up for S3 and SSH"
        )
    if config.get(f"remote.{remote}.verify") != "true":
        raise UserError(
            f"remote {remote} has no 'verify', so DVC would use a damaged object unseen: "
            f"`dvc remote modify {remote} verify true`, and commit .dvc/config"
        )


def _changes(stage: str) -> list[str]:
    """What differs from `dvc.lock`, by contents: DVC's notes on the files are left out.

    DVC notes a download's checksum without computing it, and would believe itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = _dvc(
            *("status", "--json", "--with-deps", stage),
            stdout=subprocess.PIPE,
            env=os.environ | {"DVC_SITE_CACHE_DIR": folder},
        )
    if done.returncode != 0:
        raise UserError(
            f"dvc status could not look at {stage}; mend what it says above, then `twf settle`"
        )
    return [
        line
        for name, entries in json.loads(done.stdout).items()
        for entry in entries
        for line in _described(name, entry)
    ]


def _described(stage: str, entry: Any) -> list[str]:
    """A line for each leaf of what DVC says of a stage: of outs, deps or their parameters."""
    if not isinstance(entry, dict):
        return [f"{stage}: {entry}"]
    return [line for key, value in entry.items() for line in _described(f"{stage}: {key}", value)]


def _not_planned(params: Params, study: str) -> list[str]:
    """The data, checkpoints and records of a study that are not there, or not the plan's."""
    found = status.of_plan(params, expand(params, study))
    states = [(f"data {name}", state) for name, state in found["data"].items()]
    states += [(f"source {name}", state) for name, state in found["sources"].items()]
    states += [(f"run {name}", run["status"]) for name, run in found["runs"].items()]
    return [f"{name}: {state}" for name, state in states if state != "done"]


def _listed(lines: list[str]) -> str:
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n".join(f"  {line}" for line in [*lines[:SHOWN], *more])


def _dvc(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return _call("dvc", *words, **options)


def _call(program: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run an engine of this environment."""
    if find_spec(program) is None:
        raise UserError(f"{program} is not installed here: `make setup`, then `make pull`")
    return subprocess.run([sys.executable, "-m", program, *words], text=True, **options)
