"""The runs of a study, each with what its record says: what counts as finished is decided here.

Tables, figures, metrics, comparison, claims, searches and documents all ask `Runs`. A run that is
missing, diverged or stale is counted, and never averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from twf.files import record_file
from twf.learning.evaluation import metrics
from twf.results import record, status
from twf.study import Plan, Run
from twf.study.params import PROTOCOLS, Protocol

Status = Literal["finished", "diverged", "stale", "unreadable", "missing"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Outcome:
    """A planned run and its record.

    It is `stale` as `status.of_run` says, and `missing` where there is no record.
    """

    run: Run
    status: Status
    row: Mapping[str, Any]  # the columns of `record.SCHEMA`, all null where the run is missing

    def accuracy(self, protocol: Protocol) -> list[list[float]]:
        """Per cent on task j after phase i: `[phases][tasks]`, every task, seen or not."""
        return self.row[f"accuracy_{protocol.replace('-', '_')}"]

    def initial(self, protocol: Protocol) -> list[float]:
        """Per cent on each task before training."""
        return self.row[f"initial_{protocol.replace('-', '_')}"]

    def faa(self, protocol: Protocol) -> float:
        """Final average accuracy, per cent, of a finished run."""
        return metrics.final_average_accuracy(self.accuracy(protocol))

    def results(self, protocols: Collection[Protocol] = PROTOCOLS) -> dict[str, float | None]:
        """`faa_*` and `ff_*` (as published; None for Joint) by protocol, per cent.

        None under other protocols than these, and where it has not finished.
        """
        found: dict[str, float | None] = {}
        for protocol in PROTOCOLS:
            known = self.status == "finished" and protocol in protocols
            name = protocol.replace("-", "_")
            found[f"faa_{name}"] = self.faa(protocol) if known else None
            found[f"ff_{name}"] = metrics.forgetting(self.accuracy(protocol)) if known else None
        return found

    @property
    def ended(self) -> bool:
        """Whether it was trained as planned: its hours count, also where it diverged."""
        return self.status in ("finished", "diverged")

    @property
    def on_gpu(self) -> bool:
        """Whether CUDA drove it."""
        return "cuda" in self.provenance.get("versions", {})

    @property
    def precision(self) -> str | None:
        """What products and convolutions were rounded to, if recorded; a CPU has no TF32."""
        said = self.provenance.get("precision")
        return "fp32" if said == "tf32" and not self.on_gpu else said

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Parameters, code, inputs and versions; empty where no record can be read."""
        return record.provenance(self.row)


class Runs:
    """All planned runs of a study, by identifier, in the order of the plan."""

    def __init__(self, plan: Plan, records: pa.Table) -> None:
        self.plan = plan
        planned = records.filter(pc.field("run").isin(list(plan.runs)))
        rows = {row["run"]: row for row in planned.to_pylist()}
        self.outcomes = {
            name: _outcome(plan, run, rows.get(name)) for name, run in plan.runs.items()
        }

    @classmethod
    def collected(cls, plan: Plan, history: bool = False) -> Runs:
        """The runs with their collected records; with their losses, if `history` is asked.

        Raises `UserError` where the records have not been collected, or cannot be read.
        """
        return cls(plan, record.read_collected(plan.study, history))

    @classmethod
    def of_records(cls, plan: Plan, runs: Iterable[str]) -> Runs:
        """The runs with the records of some, as far as they are there, collected or not.

        Raises `UserError` where a record cannot be read.
        """
        paths = [record_file(plan.study, run) for run in runs]
        found = [record.read(path) for path in paths if path.exists()]
        return cls(plan, pa.concat_tables([record.SCHEMA.empty_table(), *found]))

    def finished(self, runs: Mapping[int, str]) -> dict[int, Outcome]:
        """The finished ones of a cell's or a trial's `runs`, by seed: those that means are over."""
        found = {seed: self.outcomes[run] for seed, run in runs.items()}
        return {seed: outcome for seed, outcome in found.items() if outcome.status == "finished"}

    def faa(self, runs: Mapping[int, str], protocol: Protocol) -> dict[int, float]:
        """Final average accuracy, per cent, of the finished ones by seed."""
        return {seed: outcome.faa(protocol) for seed, outcome in self.finished(runs).items()}

    def counts(self, runs: Iterable[str]) -> dict[Status, int]:
        """How many of some planned runs have each status, in the order of `STATUSES`."""
        found = Counter(self.outcomes[run].status for run in runs)
        return {status: found[status] for status in STATUSES}

    def precisions(self, runs: Iterable[str]) -> list[str]:
        """The different precisions of some planned runs, in order."""
        return sorted({said for run in runs if (said := self.outcomes[run].precision)})

    def recorded(self) -> list[Outcome]:
        """Those with a record that can be read."""
        return [outcome for outcome in self.outcomes.values() if outcome.provenance]


def _outcome(plan: Plan, run: Run, row: dict[str, Any] | None) -> Outcome:
    if row is None:
        return Outcome(run, "missing", dict.fromkeys(record.SCHEMA.names))
    made_from = record.provenance(row).get("inputs", {})
    stale = row["digest"] != run.digest or bool(status.unfit_inputs(plan.params, run, made_from))
    stale &= row["status"] != "unreadable"
    return Outcome(run, "stale" if stale else row["status"], row)
