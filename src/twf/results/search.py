"""What a search for hyperparameters found: every trial, and the best trial of each cell."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import yaml

from twf.files import atomic, search_files
from twf.learning.evaluation.metrics import final_average_accuracy
from twf.results import output, record, statistics, tables
from twf.study import Plan, SearchCell, Trial
from twf.study.methods import METHODS
from twf.study.params import BestHyperparameters


@dataclass(frozen=True)
class TrialResult:
    """What the runs of one trial found: final average accuracy on held-out images, per cent."""

    trial: Trial
    accuracies: list[float]  # of the finished runs
    diverged: int
    as_set: bool  # these are the hyperparameters of params.yaml

    @property
    def complete(self) -> bool:
        """Every run finished."""
        return len(self.accuracies) == len(self.trial.runs)

    @property
    def accuracy(self) -> str:
        """The mean over seeds as text; a dash where no run finished."""
        return f"{statistics.mean(self.accuracies):.2f}" if self.accuracies else "—"

    @property
    def hyperparameters(self) -> str:
        """As text: `lr=0.03 alpha=0.2`."""
        return self.trial.hyperparameters.text


@dataclass(frozen=True)
class CellResult:
    """The trials of one cell."""

    cell: SearchCell
    trials: list[TrialResult]

    @property
    def best(self) -> TrialResult | None:
        """The highest mean accuracy among complete trials; of equals the one as set, the first."""
        complete = [trial for trial in self.trials if trial.complete]
        return max(
            complete,
            key=lambda t: (statistics.mean(t.accuracies) or 0.0, t.as_set),
            default=None,
        )

    @property
    def as_set(self) -> TrialResult | None:
        """The trial of params.yaml's own hyperparameters; None where the grid lacks them."""
        return next((trial for trial in self.trials if trial.as_set), None)

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Benchmark, method, buffer and protocol as text."""
        buffer = "—" if self.cell.buffer is None else str(self.cell.buffer)
        title = METHODS[self.cell.method].title
        return self.cell.benchmark, title, buffer, tables.PROTOCOL_TITLES[self.cell.protocol]


def results(plan: Plan, runs: pa.Table) -> list[CellResult]:
    """What a study's searches found in its records; a run without one counts as not finished."""
    rows = tables.records(plan, runs)

    def of_trial(cell: SearchCell, trial: Trial) -> TrialResult:
        found = [rows[run] for run in trial.runs.values() if run in rows]
        finished = [row for row in found if row["status"] == "finished"]
        return TrialResult(
            trial=trial,
            accuracies=[
                final_average_accuracy(tables.accuracy(r, cell.protocol)) for r in finished
            ],
            diverged=sum(row["status"] == "diverged" for row in found),
            as_set=trial.hyperparameters == cell.as_set,
        )

    return [CellResult(cell, [of_trial(cell, t) for t in cell.trials]) for cell in plan.search]


def trials(found: list[CellResult]) -> pd.DataFrame:
    """A row per trial; accuracies in per cent on the held-out images, null where none finished."""
    return pd.DataFrame(
        {
            "benchmark": result.cell.benchmark,
            "method": result.cell.method,
            "buffer": result.cell.buffer,
            "protocol": result.cell.protocol,
            "hyperparameters": json.dumps(trial.trial.hyperparameters.model_dump()),
            "as_set": trial.as_set,
            "best": trial is result.best,
            "n": len(trial.accuracies),
            "n_planned": len(trial.trial.runs),
            "n_diverged": trial.diverged,
            "accuracy_mean": statistics.mean(trial.accuracies),
            "accuracy_std": statistics.standard_deviation(trial.accuracies),
        }
        for result in found
        for trial in result.trials
    ).astype({"buffer": "Int64"})


def best(found: list[CellResult]) -> list[BestHyperparameters]:
    """Those of each cell that has a complete trial, as another study takes them."""
    return [
        BestHyperparameters(
            benchmark=result.cell.benchmark,
            method=result.cell.method,
            buffer=result.cell.buffer,
            protocol=result.cell.protocol,
            hyperparameters=result.best.trial.hyperparameters.model_dump(),
        )
        for result in found
        if result.best is not None
    ]


def write(plan: Plan) -> None:
    """Write every trial as CSV, and the best as Markdown and as input of another study."""
    found = results(plan, record.read_collected(plan.study))
    table, page, study = search_files(plan.study)
    with atomic(table) as partial:
        partial.write_text(output.csv(trials(found)))
    output.write_text("best_hyperparameters.md.j2", {"results": found}, page)
    with atomic(study) as partial:
        values = [place.model_dump() for place in best(found)]
        partial.write_text(
            f"# Found by the searches of the study {plan.study}; input of another study's\n"
            "# `best_hyperparameters`.\n" + yaml.safe_dump(values, sort_keys=False)
        )
