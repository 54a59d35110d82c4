"""A study's runs, accuracies and losses as tidy data frames, for a notebook."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import Any

import pandas as pd

from twf.results.runs import Outcome, Runs
from twf.study import Plan
from twf.study.params import Protocol

AS_SET = "as set"  # the variant of a method that is as params.yaml has it

_PLACE = ["run", "benchmark", "source", "method", "variant", "buffer", "seed"]


class Frames:
    """The runs of a study, with the columns of `_PLACE` in each frame, never null.

    `variant` is `AS_SET`, or an experiment's name for what it changes, or `trial-...` in a search;
    `buffer` is 0 without one. Runs alike in benchmark, source, method, variant and buffer differ in
    their seed, or in the protocol that their hyperparameters are for: a run's accuracies are those
    under the protocols of its cells in the tables. They are in per cent, of finished runs; those
    of a search's trials are on held-out training images.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._variants, self._protocols = _served(runs.plan)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each planned run.

        `faa_*` and `ff_*` are final average accuracy and forgetting (as published; null for Joint)
        by protocol; null where the run has not finished. `hyperparameters.*` are null where the
        method has none of this name.
        """
        rows = []
        for name, outcome in self._runs.outcomes.items():
            row = self._place(outcome) | {"status": outcome.status}
            row |= outcome.results(self._protocols[name])
            row |= {key: outcome.row[key] for key in ("seconds", "peak_memory_mib", "device")}
            values = outcome.run.hyperparameters.model_dump()
            rows.append(row | {f"hyperparameters.{key}": value for key, value in values.items()})
        numbers = [key for key in rows[0] if key.startswith(("faa", "ff", "seconds", "peak"))]
        return pd.DataFrame(rows).astype(dict.fromkeys(numbers, "float64"))

    @cached_property
    def accuracies(self) -> pd.DataFrame:
        """`accuracy` on task `evaluated` after training on task `trained`, by `protocol`.

        Tasks count from 1; `trained` is 0 before training, and Joint's are all trained at once.
        """
        rows = []
        for name, outcome in self._runs.outcomes.items():
            for protocol in self._protocols[name] if outcome.status == "finished" else ():
                matrix = outcome.accuracy(protocol)
                tasks = len(matrix[0])
                after = {0: outcome.initial(protocol)}
                after |= dict(enumerate(matrix, start=tasks - len(matrix) + 1))
                rows += [
                    (name, protocol, trained, evaluated, accuracy)
                    for trained, accuracies in after.items()
                    for evaluated, accuracy in enumerate(accuracies, start=1)
                ]
        return self._placed(rows, ["protocol", "trained", "evaluated", "accuracy"])

    @cached_property
    def losses(self) -> pd.DataFrame:
        """The mean `loss` of a `term`, weighted, in an `epoch` of training on task `trained`.

        Epochs count from 1 over all tasks. The loss minimised is the sum of a run's terms.
        """
        rows = []
        for name, outcome in self._runs.outcomes.items():
            if outcome.status == "finished":
                for epoch, entry in enumerate(outcome.row["history"], start=1):
                    trained = entry["phase"] + 1 + outcome.run.tasks - outcome.run.phases
                    rows += [(name, trained, epoch, *term) for term in entry["terms"]]
        return self._placed(rows, ["trained", "epoch", "term", "loss"])

    def _place(self, outcome: Outcome) -> dict[str, Any]:
        run = outcome.run
        place = run.model_dump(include={"benchmark", "source", "method", "seed"})
        place |= {"run": run.id, "variant": self._variants[run.id], "buffer": run.buffer or 0}
        return {key: place[key] for key in _PLACE}

    def _placed(self, rows: list[tuple[Any, ...]], columns: list[str]) -> pd.DataFrame:
        """Rows that begin with a run's name, with the run's place before them."""
        return self.runs[_PLACE].merge(pd.DataFrame(rows, columns=["run", *columns]), on="run")


def _served(plan: Plan) -> tuple[dict[str, str], dict[str, list[Protocol]]]:
    """The variant of each run, and the protocols of the cells that it serves."""
    variants: dict[str, str] = {}
    protocols = defaultdict[str, list[Protocol]](list)
    for table in plan.tables.values():
        for cell in table.cells:
            for run in cell.runs.values():
                protocols[run].append(cell.protocol)
                if cell.unchanged:
                    variants[run] = AS_SET
                variants.setdefault(run, str(cell.variant))
    for searched in plan.search:
        for trial in searched.trials:
            for run in trial.runs.values():
                protocols[run].append(searched.protocol)
                variants[run] = plan.runs[run].id.split(".")[-2]  # `trial-` and a hash
    return variants, {run: sorted(set(found)) for run, found in protocols.items()}
