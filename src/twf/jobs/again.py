"""A measured record, run again from itself: its parameters, its data, its network, today's code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from twf import files
from twf.data import store
from twf.errors import UserError, lookup
from twf.jobs.checkpoints import digest, read_safetensors
from twf.learning.evaluation.metrics import final_average_accuracy
from twf.results import record
from twf.results.evidence import read_table
from twf.study import Run, products
from twf.study.methods import METHODS

HASHES = "networks/hashes.csv"  # beside the table of records: of the networks that git has
ACCURACIES = ("initial_class_il", "initial_task_il", "accuracy_class_il", "accuracy_task_il")
WHERE = ("precision", "execution", "deterministic")  # how a run was computed


def read_row(file: Path, run: str) -> dict[str, Any]:
    """The record of a run in a table of records; its `provenance` decoded."""
    rows = {row["run"]: row for row in read_table(file).to_pylist()}
    row = lookup(
        "run", rows, run, str(file), f"{file} has {len(rows)} others, as {next(iter(rows))}"
    )
    return row | {"provenance": record.provenance(row)}


def planned(
    row: Mapping[str, Any], seed: int | None, evidence: Path
) -> tuple[Run, products.Values]:
    """The run of a record, perhaps with another seed, and its plan; its study is `again-STUDY`.

    `evidence` is the folder of the record's table, which knows the networks of older records.
    Raises `UserError` where today's code lacks what the record's parameters ask for, and where the
    data or the network here are not the record's.
    """
    parameters = row["provenance"]["parameters"]
    seeded = parameters if seed is None else parameters | {"seed": seed}
    name = row["run"] if seed is None else f"{row['run'].rpartition('.s')[0]}.s{seed}"
    try:
        run = Run(id=name, study=f"again-{row['study']}", **seeded)
        gone = sorted(set(run.fidelity) ^ set(METHODS[run.method].switches))
    except (KeyError, TypeError, ValueError):
        gone = sorted(set(parameters) - set(Run.model_fields)) or ["other parameters"]
    if gone:
        raise UserError(
            f"{row['run']} needs {', '.join(gone)}, which today's code lacks: {_there(row)}"
        )
    inputs = row["provenance"]["inputs"]
    _require_data(run, inputs)
    _require_network(run, inputs, evidence / HASHES)
    needed = dict.fromkeys(filter(None, (run.data, run.source_data)))
    return run, {
        "parameters": run.values,  # noqa: PD011
        "data": {data: products.made_data(data) for data in needed},
        "network": products.made_network(run.source),
    }


def _there(row: Mapping[str, Any]) -> str:
    """How a record is made again by the code that made it."""
    commit = (row["provenance"]["code"]["commit"] or "").rstrip("+")
    return (
        f"`git worktree add --detach ../{commit[:7]} {commit[:7]}`, and in that folder "
        f"`make setup` and `twf run {row['study']} {row['run']}`"
    )


def _require_data(run: Run, inputs: Mapping[str, str]) -> None:
    """Raise `UserError` where prepared data are missing, or other images than the record's."""
    for name, prefix in ((run.data, ""), (run.source_data, "source_")):
        if name is None:
            continue
        path = files.data_file(name)
        remedy = f"`twf data prepare {name}`, or `twf data import {name} FILE`"
        if not path.exists():
            raise UserError(f"no {path}: {remedy}")
        dataset = store.load(path)
        for part in ("train_fingerprint", "test_fingerprint"):
            recorded, here = inputs.get(prefix + part), getattr(dataset, part)
            if recorded not in (None, here):
                raise UserError(
                    f"{path} has other images than the record was made from: its {part} is {here}, "
                    f"the record's {recorded}; {remedy}"
                )


def _require_network(run: Run, inputs: Mapping[str, str], known: Path) -> None:
    """Raise `UserError` where the checkpoint of a run's source is not the record's network.

    Older records have the hash of their checkpoint's file; `known` has that of its tensors.
    """
    columns = ["network_sha256", "checkpoint_sha256"]
    hashes = pd.read_csv(known) if known.exists() else pd.DataFrame(columns=columns)
    by_file = hashes.set_index("checkpoint_sha256")["network_sha256"]
    recorded = inputs.get("network_sha256") or by_file.get(inputs["checkpoint_sha256"])
    if recorded is not None and recorded in set(hashes["network_sha256"]):
        remedy = f"`twf pretrain train {run.source}` takes that of git"
    else:
        remedy = f"this network is not in git: `twf pretrain import {run.source} FILE`"
    path = files.checkpoint_file(run.source)
    here = digest("", read_safetensors(path, remedy)[0]) if path.exists() else None
    if recorded is None or recorded != here:
        raise UserError(
            f"{path} is {'another network' if here else 'not there'}, the record's has the SHA-256 "
            f"{recorded or inputs['checkpoint_sha256']}; {remedy}"
        )


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """How a record made again differs from the first one, and what differed in the making."""
    equal = all(old[name] == new[name] for name in ACCURACIES)
    equal_losses = _losses(old) == _losses(new)
    if equal and equal_losses:
        yield "every accuracy and every loss is the record's, to the last bit"
    elif equal:
        yield "every accuracy is the record's; losses differ"
    else:
        for title, name in (("Class-IL", "accuracy_class_il"), ("Task-IL", "accuracy_task_il")):
            first, again = (_final(row[name]) for row in (old, new))
            yield f"{title}: {again} now, {first} in the record"
    differences = list(_made_differently(old, new))
    if differences:
        yield f"made differently: {'; '.join(differences)}"
    elif not (equal and equal_losses):
        yield "code of the method, versions, precision and processor are the record's"


def _final(matrix: list[list[float]]) -> str:
    return f"{final_average_accuracy(matrix):.2f} %" if matrix else "diverged"


def _losses(row: Mapping[str, Any]) -> list[Any]:
    return [(e["phase"], e["epoch"], e["loss"], dict(e["terms"])) for e in row["history"]]


def _made_differently(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if old["seed"] != new["seed"]:
        yield f"seed {old['seed']} -> {new['seed']}"
    first, again = old["provenance"], new["provenance"]
    if first["code"]["method_hash"] != again["code"]["method_hash"]:
        commits = (str(by["code"]["commit"])[:7] for by in (first, again))
        yield f"code of {new['method']}, commit {' -> '.join(commits)}"
    for name in WHERE:
        if first[name] != again[name]:
            yield f"{name} {first[name]} -> {again[name]}"
    if old["device"] != new["device"]:
        yield f"processor {old['device']} -> {new['device']}"
    versions = first["versions"], again["versions"]
    for name in dict.fromkeys([*versions[0], *versions[1]]):
        before, now = (version.get(name) for version in versions)
        if before != now:
            yield f"{name} {before} -> {now}"


def made(run: Run) -> dict[str, Any]:
    """The new record of a run."""
    (row,) = record.read(files.record_file(run.study, run.id)).to_pylist()
    return row | {"provenance": json.loads(row["provenance"])}
