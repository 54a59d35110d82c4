"""A measured record, run again from itself: its parameters, its data, its network, today's code."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from twf.errors import UserError, lookup
from twf.jobs.run import read_inputs
from twf.learning.evaluation.metrics import final_average_accuracy
from twf.results import record
from twf.results.evidence import read_table
from twf.study import Run, products
from twf.study.methods import METHODS

HASHES = "networks/hashes.csv"  # beside the table of records: of the networks that git has
ACCURACIES = ("initial_class_il", "initial_task_il", "accuracy_class_il", "accuracy_task_il")
COMPUTED = ("precision", "execution", "deterministic")  # of what differs, beside versions


def read_row(file: Path, run: str) -> dict[str, Any]:
    """The record of a run in a table of records; its `provenance` decoded."""
    rows = {row["run"]: row for row in read_table(file).to_pylist()}
    row = lookup("run", rows, run, str(file), f"there are {len(rows)}, as {next(iter(rows), None)}")
    return row | {"provenance": record.provenance(row)}


def planned(
    row: Mapping[str, Any], seed: int | None, evidence: Path
) -> tuple[Run, products.Values]:
    """The run of a record, perhaps with another seed, and its plan; its study is `again-STUDY`.

    `evidence` is the folder of the record's table, which knows the networks of older records.
    Raises `UserError` where today's code lacks what the record's parameters ask for, and where the
    data or the network here are not the record's.
    """
    provenance, name = row["provenance"], row["run"]
    parameters = provenance["parameters"]
    if seed is not None:
        parameters, name = parameters | {"seed": seed}, f"{name.rpartition('.s')[0]}.s{seed}"
    try:
        run = Run(id=name, study=f"again-{row['study']}", **parameters)
        gone = sorted(set(run.fidelity) ^ set(METHODS[run.method].switches))
    except (KeyError, TypeError, ValueError):
        gone = sorted(set(parameters) - set(Run.model_fields)) or ["other parameters"]
    if gone:
        commit = str(provenance["code"]["commit"])[:7]
        raise UserError(
            f"{row['run']} needs {', '.join(gone)}, which today's code lacks: `git worktree add "
            f"--detach ../{commit} {commit}`, and in that folder `make setup` and `twf run "
            f"{row['study']} {row['run']}`"
        )
    *_, here = read_inputs(run)
    recorded = dict(provenance["inputs"])
    if "network_sha256" not in recorded:  # an older record has the hash of its checkpoint's file
        known = pd.read_csv(evidence / HASHES).set_index("checkpoint_sha256")["network_sha256"]
        file = recorded["checkpoint_sha256"]
        recorded["network_sha256"] = known.get(file, f"of the file {file}")
    for key, value in here.items():
        if recorded.get(key, value) != value:
            data = run.source_data if key.startswith("source") else run.data
            remedy = f"`twf data prepare {data}`, or `twf data import {data} FILE`"
            if key == "network_sha256":
                remedy = f"`weights` of sources.{run.source} in params.yaml names another"
            raise UserError(f"the record's {key} is {recorded[key]}, here {value}: {remedy}")
    needed = dict.fromkeys(filter(None, (run.data, run.source_data)))
    return run, {
        "parameters": run.parameters,
        "data": {data: products.made_data(data) for data in needed},
        "network": products.made_network(run.source),
    }


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """How a record made again differs from the first one, and what differed in the making."""
    equal = all(old[name] == new[name] for name in ACCURACIES)
    first, again = (  # as text, since a run that diverges has NaN, which equals nothing
        repr([(e["loss"], dict(e["terms"])) for e in row["history"]]) for row in (old, new)
    )
    if equal:
        same = "every accuracy and every loss is the record's, to the last bit"
        yield same if first == again else "every accuracy is the record's; losses differ"
    else:
        for title, name in (("Class-IL", "accuracy_class_il"), ("Task-IL", "accuracy_task_il")):
            before, now = (
                f"{final_average_accuracy(row[name]):.2f} %"
                if row["status"] == "finished"
                else "diverged"
                for row in (old, new)
            )
            yield f"{title}: {now} now, {before} in the record"
    made, remade = (
        {"seed": row["seed"], "processor": row["device"], **row["provenance"]["versions"]}
        | {name: row["provenance"][name] for name in COMPUTED}
        for row in (old, new)
    )
    differences = products.changes(made, remade)
    codes = [row["provenance"]["code"] for row in (old, new)]
    if len({code["method_hash"] for code in codes}) > 1:
        commits = " -> ".join(str(code["commit"])[:7] for code in codes)
        differences.insert(0, f"code of {new['method']}, commit {commits}")
    if differences:
        yield f"made differently: {'; '.join(differences)}"
    elif not equal or first != again:
        yield "code of the method, versions, precision and processor are the record's"
