"""What a search for hyperparameters found: every trial, and the best trial of each cell."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd
import yaml

from twf.files import atomic, search_files
from twf.results import output, statistics
from twf.results.output import PROTOCOL_TITLES, Texts, number
from twf.results.published import CellKey, key_of
from twf.results.runs import Runs
from twf.study import SearchCell, Trial
from twf.study.grids import times
from twf.study.methods import METHODS
from twf.study.params import BestFactors, BestHyperparameters
from twf.study.types import Hyperparameters


@dataclass(frozen=True)
class TrialResult:
    """What the runs of one trial found: final average accuracy on held-out images, per cent."""

    trial: Trial
    accuracies: list[float]  # of the finished runs
    diverged: int
    as_set: bool  # these are the hyperparameters of params.yaml


@dataclass(frozen=True)
class CellResult:
    """The trials of one cell."""

    cell: SearchCell
    trials: list[TrialResult]

    @property
    def best(self) -> TrialResult | None:
        """The highest mean accuracy of trials without an unfinished run.

        Of equals the one as set, or the first; None where no trial is complete.
        """
        complete = [t for t in self.trials if len(t.accuracies) == len(t.trial.runs)]
        return max(
            complete,
            key=lambda t: (statistics.mean(t.accuracies) or 0.0, t.as_set),
            default=None,
        )

    @property
    def ended(self) -> bool:
        """Whether each run of each trial has finished or diverged."""
        return all(len(t.accuracies) + t.diverged == len(t.trial.runs) for t in self.trials)

    def chosen(self, name: str) -> float | None:
        """The best trial's value of a hyperparameter.

        None where all trials have the same, or one has a run that has not ended.
        """
        tried = {getattr(t.trial.hyperparameters, name) for t in self.trials}
        if self.best is None or len(tried) == 1 or not self.ended:
            return None
        return float(getattr(self.best.trial.hyperparameters, name))


def results(runs: Runs) -> list[CellResult]:
    """What a study's searches found in its records."""

    def of_trial(cell: SearchCell, trial: Trial) -> TrialResult:
        return TrialResult(
            trial=trial,
            accuracies=list(runs.faa(trial.runs, cell.protocol).values()),
            diverged=runs.counts(trial.runs.values())["diverged"],
            as_set=trial.hyperparameters == cell.as_set,
        )

    return [CellResult(cell, [of_trial(cell, t) for t in cell.trials]) for cell in runs.plan.search]


def untuned(runs: Runs) -> dict[CellKey, str]:
    """The cells with a hyperparameter that the paper does not print and no search has chosen.

    Each with the method's and the hyperparameter's name. The search may be another study's, whose
    `best_hyperparameters` this one takes, or its own, once it is complete and its best is what the
    cell has.
    """
    searched = {
        (r.cell.benchmark, r.cell.method, r.cell.buffer, r.cell.protocol): r for r in results(runs)
    }
    found = {}
    for table in runs.plan.tables.values():
        for cell in table.cells:
            name = METHODS[cell.method].not_printed
            if name is None or name in cell.searched:
                continue
            key = key_of(table, cell)
            own = searched.get((key.benchmark, key.method, key.buffer, key.protocol))
            value = getattr(runs.plan.runs[next(iter(cell.runs.values()))].hyperparameters, name)
            if own is None or value != own.chosen(name):
                found[key] = f"{name} of {METHODS[cell.method].title}"
    return found


def trials(found: list[CellResult]) -> pd.DataFrame:
    """A row per trial; accuracies in per cent on the held-out images, null where none finished."""
    return pd.DataFrame(
        {
            **result.cell.model_dump(include={"benchmark", "method", "buffer", "protocol"}),
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


def entry(result: CellResult) -> Texts:
    """A searched cell as text, by the heading of each column."""
    texts = {
        "Benchmark": result.cell.benchmark,
        "Method": METHODS[result.cell.method].title,
        "Buffer": "—" if result.cell.buffer is None else str(result.cell.buffer),
        "Protocol": PROTOCOL_TITLES[result.cell.protocol],
        "Tried": str(len(result.trials)),
    }
    as_set = next((trial for trial in result.trials if trial.as_set), None)  # maybe not tried
    for name, trial in (("Best", result.best), ("As set", as_set)):
        texts[name] = trial.trial.hyperparameters.text if trial else "—"
        texts[f"{name}: accuracy"] = number(statistics.mean(trial.accuracies) if trial else None)
    return texts


def _for_another_study(
    cell: SearchCell, values: Hyperparameters
) -> BestHyperparameters | BestFactors:
    """The hyperparameters that were found best of a cell, as another study takes them."""
    if cell.factors:
        factors = {
            key: next(f for f in tried if times(cell.as_set, key, f) == getattr(values, key))
            for key, tried in cell.factors.items()
        }
        return BestFactors(benchmark=cell.benchmark, method=cell.method, factors=factors)
    return BestHyperparameters(
        **cell.model_dump(include={"benchmark", "method", "buffer", "protocol"}),
        hyperparameters=values.model_dump(),
    )


def write(runs: Runs) -> None:
    """Write every trial as CSV, and the best as Markdown and as input of another study.

    That input waits until the search is complete: fewer records than it was made from, as beside
    another checkpoint, must not change what the other study takes.
    """
    found = results(runs)
    table, page, study = search_files(runs.plan.study)
    with atomic(table) as partial:
        partial.write_text(output.csv(trials(found)), encoding="utf-8")
    values = {"entries": [entry(result) for result in found]}
    output.write_text("best_hyperparameters.md.j2", values, page)
    if left := sum(not result.ended for result in found):
        print(f"{study} is not written: {left} of {len(found)} cells have trials to do")
        return
    best = [_for_another_study(r.cell, r.best.trial.hyperparameters) for r in found if r.best]
    with atomic(study) as partial:
        partial.write_text(
            f"# Found by the searches of the study {runs.plan.study}; input of another study's\n"
            "# `best_hyperparameters`.\n"
            + yaml.safe_dump([place.model_dump() for place in best], sort_keys=False),
            encoding="utf-8",
        )
