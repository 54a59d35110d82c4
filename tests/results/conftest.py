"""Synthetic records of the plan of a small study, written where the pipeline would."""

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import PROJECT

from twf import study
from twf.files import PARAMS, PRINTED, record_file, runs_file
from twf.results import record
from twf.results.frame import Results
from twf.study import Plan, reading
from twf.study.products import Products

PROJECT_VALUES = yaml.safe_load((PROJECT / PARAMS).read_text())


def planned(small: dict[str, Any]) -> Plan:
    """The plan of params.yaml with one study, which is put into the current folder."""
    PRINTED.parent.mkdir(exist_ok=True)
    shutil.copy(PROJECT / PRINTED, PRINTED)
    values = PROJECT_VALUES | {"study": "small", "studies": {"small": small}}
    PARAMS.write_text(yaml.safe_dump(values, sort_keys=False))
    return study.expand(reading.load(PARAMS), "small")


@pytest.fixture
def make_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """The plan of a study of one experiment, and of `others` like that, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def make(
        seeds: list[int],
        study_title: str = "A small study",
        others: Mapping[str, Any] | None = None,
        best: str | None = None,
        **experiment: Any,
    ) -> Plan:
        main = {"title": "Accuracy", "benchmarks": ["split-cifar10"]}
        main |= {"methods": ["joint", "finetune", "er", "derpp", "twf"]} | experiment
        each = {"main": main} | {name: main | more for name, more in (others or {}).items()}
        small = {"title": study_title, "seeds": seeds, "experiments": each}
        return planned(small | ({"best_hyperparameters": best} if best else {}))

    return make


def row_of(plan: Plan, run_id: str, level: float = 80.0, **columns: Any) -> dict[str, Any]:
    """The record of a planned run as a row; keywords replace columns.

    One that finished has the same accuracy, `level`, on all tasks after each phase; one that
    diverged has none.
    """
    run = plan.runs[run_id]
    finished = columns.get("status", "finished") == "finished"
    matrix = [[level] * run.tasks] * run.phases if finished else []
    made_by = Products(plan.params).run_plan(run, {})
    own = made_by.get("code", "00ff")
    provenance = {
        "parameters": made_by.pop("parameters"),
        "plan": made_by,
        "code": {"version": "0.1.0", "commit": "abc1234", "method_hash": own},
        "inputs": {"data": "d00d"},
        "versions": {"torch": "2.13.0"},
    }
    place = {"study", "benchmark", "source", "pretrained", "method", "buffer", "seed"}
    return {
        **run.model_dump(include=place),
        "run": run.id,
        "initial_class_il": [50.0] * run.tasks,
        "initial_task_il": [50.0] * run.tasks,
        **{name: [] for name in record.PROBED},
        "status": "finished",
        "reason": None,
        "accuracy_class_il": matrix,
        "accuracy_task_il": matrix,
        "history": [],
        "seconds": 1800.0,
        "peak_memory_mib": 100.0,
        "started": datetime(2026, 1, 1, tzinfo=UTC),
        "device": "cpu",
        "host": "here",
        "digest": run.digest,
        "provenance": json.dumps(provenance),
    } | columns


@pytest.fixture
def collect() -> Callable[[Plan], Results]:
    """Collect the records that exist of a plan's runs; the runs with them."""

    def gather(plan: Plan) -> Results:
        files = [record_file(plan.study, run) for run in plan.runs]
        record.collect([file for file in files if file.exists()], runs_file(plan.study))
        return Results(plan, record.read(runs_file(plan.study)))

    return gather


@pytest.fixture
def recorded(collect: Callable[[Plan], Results]) -> Callable[..., Results]:
    """Write records of a plan and collect them: by run the level of its accuracies, or columns.

    Without any, each run's, of the level 80.
    """

    def make(plan: Plan, records: Mapping[str, float | dict[str, Any]] | None = None) -> Results:
        for run, found in (dict.fromkeys(plan.runs, 80.0) if records is None else records).items():
            row = row_of(plan, run, **(found if isinstance(found, dict) else {"level": found}))
            record.write(record_file(plan.study, run), row)
        return collect(plan)

    return make
