"""What Weights & Biases shows of a run: a function of the run's record, whole or so far.

A `Row` has the columns of `twf.results.record.SCHEMA`. While a run trains, later columns are
missing, and `history` and the accuracies hold what there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from twf.learning.evaluation import metrics
from twf.results import record
from twf.study.methods import METHODS
from twf.study.params import PROTOCOLS, Tracking

Row = Mapping[str, Any]


def about(row: Row, settings: Tracking) -> dict[str, Any]:
    """What `wandb.init` takes to describe a run: a project per study, a group per cell.

    The identifier is the same for the same run with the same parameters, on every machine and at
    any time.
    """
    provenance = record.provenance(dict(row))
    columns = {name: row[name] for name in ("study", "digest", "device", "host")}
    return {
        "project": f"{settings.project}-{row['study']}",
        "entity": settings.entity,
        "id": f"{row['study']}.{row['run']}.{row['digest'][:8]}",
        "name": row["run"],
        "group": row["run"].removesuffix(f".s{row['seed']}"),
        "config": provenance.pop("parameters")
        | columns
        | provenance
        | {"started": row["started"].isoformat()},
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
        accuracies = row[f"accuracy_{protocol.replace('-', '_')}"][phase]
        at_once = METHODS[row["method"]].at_once  # it has seen all tasks after its only phase
        seen = accuracies if at_once else accuracies[: phase + 1]
        values[f"accuracy/{protocol}/seen"] = sum(seen) / len(seen)
        values |= {f"accuracy/{protocol}/task-{i}": a for i, a in enumerate(accuracies)}
    for probe in record.PROBED:
        if row[probe]:  # whose first entry is from before training
            values |= {f"{probe}/{i}": value for i, value in enumerate(row[probe][phase + 1])}
    return values


def summary(row: Row) -> dict[str, float | str | None]:
    """The outcome of a record: final accuracy and forgetting, or why there are none."""
    outcome: dict[str, float | str | None] = {k: row[k] for k in ("status", "reason", "seconds")}
    for protocol in PROTOCOLS if row["status"] == "finished" else ():
        matrix = row[f"accuracy_{protocol.replace('-', '_')}"]
        outcome[f"faa/{protocol}"] = metrics.final_average_accuracy(matrix)
        outcome[f"ff/{protocol}"] = metrics.forgetting(matrix)
    return outcome
