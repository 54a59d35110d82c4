"""What Weights & Biases shows of a run: a function of the run's record, whole or so far.

A `Row` has the columns of `twf.results.record.SCHEMA`. While a run trains, later columns are
missing, and `history` and the accuracies hold what there is.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any

from twf.learning.evaluation import metrics
from twf.learning.evaluation.metrics import Matrix
from twf.results import record
from twf.study.methods import METHODS
from twf.study.params import PROTOCOLS, Protocol, Tracking

Row = Mapping[str, Any]

STALE = "stale"  # the tag of a run with other parameters than the study's

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


def group(row: Row) -> str:
    """The run's name with a digest in place of its seed, alike in runs that differ in it alone.

    Or in what goes with a seed: which of the source's networks it starts from, and probes, which
    some seeds of a cell may have, with the images that these need.
    """
    ignored = {"seed", "source", "probes"}
    if not METHODS[row["method"]].source_data:
        ignored |= {"source_data", "source_augmentation"}
    parameters = record.provenance(dict(row))["parameters"]
    parameters = {key: value for key, value in parameters.items() if key not in ignored}
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()
    return row["run"].removesuffix(f"s{row['seed']}") + digest[:8]


def about(row: Row, stale: bool = False) -> dict[str, Any]:
    """What `wandb.init` takes to describe a run."""
    provenance = record.provenance(dict(row))
    parameters = provenance.pop("parameters")
    tags = [row["benchmark"], row["method"], f"from-{row['source']}"]
    if row["buffer"] is not None:
        tags.append(f"buffer-{row['buffer']}")
    if stale:
        tags.append(STALE)
    columns = {name: row[name] for name in ("study", "digest", "device", "host")}
    return {
        "id": identity(row),
        "name": row["run"],
        "group": group(row),
        "job_type": "train" if parameters["held_out"] is None else "search",
        "tags": tags,
        "config": parameters | columns | provenance | {"started": row["started"].isoformat()},
    }


def rows(row: Row) -> list[dict[str, float]]:
    """The rows of the charts by step: each epoch's losses, then each phase's accuracies.

    While the run trains, they are the first ones of its record.
    """
    found = []
    for phase, epochs in groupby(row["history"], key=lambda entry: int(entry["phase"])):
        found += [_epoch(entry) for entry in epochs]
        if phase < len(row["accuracy_class_il"]):
            found.append(_phase(row, phase))
    return found


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
    """The outcome of a record: final metrics per protocol of a finished run, the reason of others.

    `seconds` tells two executions of one run apart.
    """
    names = ("status", "reason", "seconds", "peak_memory_mib")
    found: dict[str, float | str | None] = {name: row[name] for name in names}
    if row["status"] != "finished":
        return found
    for protocol in PROTOCOLS:
        matrix = accuracy(row, protocol)
        initial = row[f"initial_{protocol.replace('-', '_')}"]
        found |= {f"{name}/{protocol}": metric(matrix) for name, metric in METRICS.items()}
        found[f"forward-transfer/{protocol}"] = metrics.forward_transfer(matrix, initial)
    return found


def matches(sent: Mapping[str, Any], row: Row) -> bool:
    """Whether a summary that Weights & Biases has is that of this record."""
    return all(_same(sent.get(name), value) for name, value in summary(row).items())


def _same(sent: Any, value: float | str | None) -> bool:
    if isinstance(sent, int | float) and isinstance(value, float):
        return math.isclose(sent, value)  # it was written as text and read
    return bool(sent == value)


def accuracy(row: Row, protocol: Protocol) -> Matrix:
    """`[phase][task]`, in per cent."""
    matrix: Matrix = row[f"accuracy_{protocol.replace('-', '_')}"]
    return matrix


COLUMNS: list[str | int] = ["protocol", "phase", "task", "accuracy"]


def table(row: Row) -> list[Iterable[str | int | float]]:
    """The accuracy matrices in long form, with `COLUMNS`; empty where no phase was finished."""
    return [
        (protocol, phase, task, value)
        for protocol in PROTOCOLS
        for phase, accuracies in enumerate(accuracy(row, protocol))
        for task, value in enumerate(accuracies)
    ]


def heat_map(matrix: Matrix) -> str:
    """An accuracy matrix as HTML: a row per phase, white at 0 and blue at 100 per cent."""
    tasks = "".join(f"<th>task {task}</th>" for task in range(len(matrix[0])))
    body = "".join(
        f"<tr><th>after phase {phase}</th>{''.join(_cell(value) for value in accuracies)}</tr>"
        for phase, accuracies in enumerate(matrix)
    )
    style = "font: 14px sans-serif; text-align: right; border-spacing: 2px"
    return f'<table style="{style}"><tr><th></th>{tasks}</tr>{body}</table>'


def _cell(value: float) -> str:
    lightness = 100 - value / 2
    return f'<td style="padding: 6px; background: hsl(210 75% {lightness:.0f}%)">{value:.1f}</td>'
