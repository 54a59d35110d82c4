"""Time of what follows the runs: seconds of each stage from many synthetic records to the report.

    python -m benchmarks.report_time --records 2000

expands a study of params.yaml to so many seeds that it has this many runs, writes a made-up record
of each in a temporary folder, with an entry for every epoch that the run would train, and prints a
Markdown table: seconds of processor time of each stage, and the size of the report.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import command
from twf import files
from twf.cli.results import write_compared
from twf.results import cells, figures, record, report, search
from twf.results.frame import Results
from twf.study import Plan, Run, expand, reading
from twf.study.params import Params

TERMS = {"er": 1, "derpp": 3, "twf": 6}  # of a method's loss; 2 of others


def with_seeds(params: Params, study: str, records: int) -> Params:
    """The parameters with so many seeds that the study has at least so many runs.

    They replace the seeds that its experiments have of their own.
    """
    per_seed = len(expand(_seeded(params, study, 1), study).runs)
    return _seeded(params, study, math.ceil(records / per_seed))


def _seeded(params: Params, study: str, count: int) -> Params:
    values = params.model_dump(mode="json", exclude_none=True)
    seeds = list(range(count))
    values["studies"][study]["seeds"] = seeds
    for experiment in values["studies"][study]["experiments"].values():
        experiment["seeds"] = seeds
    return reading.check(values)


def row_of(run: Run, generator: np.random.Generator) -> dict[str, Any]:
    """A record as a finished run would leave it, with random accuracies and losses."""
    phases = 1 if run.method == "joint" else run.tasks
    matrix = generator.uniform(10, 90, (phases, run.tasks)).tolist()
    names = [f"term_{i}" for i in range(TERMS.get(run.method, 2))]
    history = [
        {
            "phase": phase,
            "epoch": epoch,
            "seconds": 1.0,
            "loss": 1.0 / (1 + epoch),
            "terms": dict.fromkeys(names, 1.0 / (1 + epoch) / len(names)),
        }
        for phase in range(phases)
        for epoch in range(run.epochs)
    ]
    provenance = {
        "parameters": json.loads(run.parameters),
        "code": {"version": "0.1.0", "commit": "0" * 40, "method_hash": "0" * 64},
        "inputs": dict.fromkeys(
            ("checkpoint_sha256", "train_fingerprint", "test_fingerprint"), "0" * 64
        ),
        "versions": {"python": "3.12.3", "torch": "2.13.0", "numpy": "2.4.0"},
    }
    place = run.model_dump(
        include={"study", "benchmark", "source", "method", "pretrained", "buffer", "seed"}
    )
    probed = generator.uniform(0, 1, (phases + 1, 5)).tolist() if run.probes else []
    return place | {
        "run": run.id,
        "status": "finished",
        "reason": None,
        "initial_class_il": [10.0] * run.tasks,
        "initial_task_il": [50.0] * run.tasks,
        "accuracy_class_il": matrix,
        "accuracy_task_il": matrix,
        "cka": probed,
        "nearest_neighbours": [row[:2] for row in probed],
        "gates_open": [],
        "history": history,
        "seconds": 3600.0,
        "peak_memory_mib": 2000.0,
        "started": datetime(2026, 1, 1, tzinfo=UTC),
        "device": "a device",
        "host": "a host",
        "digest": run.digest,
        "provenance": json.dumps(provenance),
    }


def stages(params: Params, plan: Plan) -> dict[str, Callable[[], object]]:
    """What is done after the runs, by the name of its command."""
    paths = [files.record_file(plan.study, run) for run in plan.runs]

    def make_tables() -> None:
        results = Results.collected(plan)
        cells.write(results, plan.tables.values())
        if plan.search:
            search.write(results)

    return {  # in the order in which each finds what it needs
        "collect": lambda: record.collect(paths, files.runs_file(plan.study)),
        "table": make_tables,
        "compare": lambda: write_compared(params, Results.collected(plan)),
        "figures": lambda: figures.write(Results.collected(plan)),
        "report": lambda: report.write(params, Results.collected(plan)),
    }


def measure(params: Params, study: str) -> str:
    """Write the records of a study into the current folder, and time each stage: Markdown."""
    plan = expand(params, study)
    generator = np.random.default_rng(0)
    for run in plan.runs.values():
        record.write(files.record_file(study, run.id), row_of(run, generator))
    seconds = {}
    for name, stage in stages(params, plan).items():
        started = time.process_time()
        stage()
        seconds[name] = time.process_time() - started
    seconds["together"] = sum(seconds.values())
    size = files.report_file(study).stat().st_size
    lines = [f"| {len(plan.runs)} records of {study} | seconds |", "| :--- | ---: |"]
    lines += [f"| {name} | {value:.1f} |" for name, value in seconds.items()]
    return "\n".join([*lines, "", f"The report has {size / 1e6:.1f} MB."])


def main(
    study: Annotated[str, typer.Argument(help="A study of params.yaml.")] = "paper",
    records: Annotated[int, typer.Option(min=1, help="As many, or a few more.")] = 2000,
    project: Annotated[Path, typer.Option(help="With params.yaml.")] = Path(),
) -> None:
    """Time tables, comparison, figures and report of many synthetic records."""
    params = with_seeds(reading.load(project / files.PARAMS), study, records)
    published = (project / files.PRINTED).resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        files.PRINTED.parent.mkdir()
        shutil.copy(published, files.PRINTED)
        print(measure(params, study))


if __name__ == "__main__":
    command(main)
