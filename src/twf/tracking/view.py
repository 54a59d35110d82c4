"""What Weights & Biases shows of a run: a function of the run's record, whole or so far.

A `Row` has the columns of `twf.results.record.SCHEMA`. While a run trains, later columns are
missing, and `history` and the accuracies hold what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from twf.learning.evaluation import metrics
from twf.learning.evaluation.metrics import Matrix
from twf.results import record
from twf.study.methods import METHODS
from twf.study.params import PROTOCOLS, Protocol, Tracking

Row = Mapping[str, Any]

METRICS: dict[str, Callable[[Matrix], float | None]] = {
    "faa": metrics.final_average_accuracy,
    "ff": metrics.forgetting,
    "ff-paper": metrics.forgetting_paper,
    "learning-accuracy": metrics.learning_accuracy,
    "average-incremental-accuracy": metrics.average_incremental_accuracy,
    "backward-transfer": metrics.backward_transfer,
}


def project(settings: Tracking, study: str) -> str:
    """A project per study: `twf-demo`."""
    return f"{settings.project}-{study}"


def identity(row: Row) -> str:
    """The same for the same run with the same parameters, on every machine and at any time."""
    return f"{row['study']}.{row['run']}.{row['digest'][:8]}"


def about(row: Row) -> dict[str, Any]:
    """What `wandb.init` takes to describe a run."""
    provenance = record.provenance(dict(row))
    parameters = provenance.pop("parameters")
    tags = [row["benchmark"], row["method"], f"from-{row['source']}"]
    if row["buffer"] is not None:
        tags.append(f"buffer-{row['buffer']}")
    columns = {name: row[name] for name in ("study", "digest", "device", "host")}
    return {
        "id": identity(row),
        "name": row["run"],
        "group": row["run"].removesuffix(f".s{row['seed']}"),
        "job_type": "train" if parameters["held_out"] is None else "search",
        "tags": tags,
        "config": parameters | columns | provenance | {"started": row["started"].isoformat()},
    }


def rows(row: Row) -> list[dict[str, float]]:
    """The rows of the charts by step: each epoch's losses, then each phase's accuracies.

    While the run trains, they are the first ones of its record.
    """
    charted = []
    for phase, epochs in groupby(row["history"], key=lambda entry: int(entry["phase"])):
        charted += [_epoch(entry) for entry in epochs]
        if phase < len(row["accuracy_class_il"]):
            charted.append(_phase(row, phase))
    return charted


def _epoch(entry: Row) -> dict[str, float]:
    terms = {f"loss/{name}": value for name, value in dict(entry["terms"]).items()}
    return {"phase": entry["phase"], "epoch": entry["epoch"], "loss/total": entry["loss"], **terms}


def _phase(row: Row, phase: int) -> dict[str, float]:
    values: dict[str, float] = {"phase": phase}
    for protocol in PROTOCOLS:
        accuracies = accuracy(row, protocol)[phase]
        at_once = METHODS[row["method"]].at_once  # it has seen all tasks after its only phase
        seen = accuracies if at_once else accuracies[: phase + 1]
        values[f"accuracy/{protocol}/seen"] = sum(seen) / len(seen)
        values |= {f"accuracy/{protocol}/task-{i}": a for i, a in enumerate(accuracies)}
    for probe in record.PROBED:
        if row[probe]:  # whose first entry is from before training
            values |= {f"{probe}/{i}": value for i, value in enumerate(row[probe][phase + 1])}
    return values


def summary(row: Row) -> dict[str, float | str | None]:
    """The outcome of a record: final metrics of a finished run, the reason of others."""
    names = ("status", "reason", "seconds", "peak_memory_mib")
    outcome: dict[str, float | str | None] = {name: row[name] for name in names}
    if row["status"] != "finished":
        return outcome
    for protocol in PROTOCOLS:
        matrix = accuracy(row, protocol)
        initial = row[f"initial_{protocol.replace('-', '_')}"]
        outcome |= {f"{name}/{protocol}": metric(matrix) for name, metric in METRICS.items()}
        outcome[f"forward-transfer/{protocol}"] = metrics.forward_transfer(matrix, initial)
    return outcome


def accuracy(row: Row, protocol: Protocol) -> Matrix:
    """`[phase][task]`, in per cent."""
    matrix: Matrix = row[f"accuracy_{protocol.replace('-', '_')}"]
    return matrix
