"""The runs that are measured: those of `params.yaml`, on random images and weights."""

from __future__ import annotations

from twf.errors import UserError
from twf.study import Run, expand
from twf.study.params import Params


def planned(params: Params, benchmark: str, method: str) -> Run:
    """The first run of a method on a benchmark in any study, with one epoch per task."""
    for name, study in params.studies.items():
        if (
            study.best_hyperparameters is not None
        ):  # a search gives its hyperparameters, never its shapes
            continue
        for run in expand(params, name).runs.values():
            if run.benchmark == benchmark and run.method == method:
                return run.model_copy(update={"epochs": 1})
    raise UserError(f"no study of params.yaml has a run of {method} on {benchmark}")
