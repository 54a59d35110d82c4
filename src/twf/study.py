"""The runs and tables that a study stands for.

Snakemake, DVC's stages, the command line, the tables and the tests all ask `expand`; nothing else
lists methods or cells. No torch here: planning starts at once.
"""

from __future__ import annotations

import hashlib
import json

from twf.errors import UserError
from twf.hyperparameters import METHODS, Strict
from twf.params import (
    PROTOCOLS,
    Augmentation,
    Experiment,
    LrDecay,
    Network,
    Params,
    Protocol,
)


class Run(Strict):
    """One continual-learning run with everything that decides its result."""

    id: str
    study: str
    benchmark: str
    data: str
    classes: int
    tasks: int
    source: str
    network: Network
    augmentation: Augmentation
    method: str
    buffer: int | None
    hyperparameters: dict[str, float]
    epochs: int
    batch_size: int
    lr_decay: LrDecay | None
    seed: int

    @property
    def parameters(self) -> str:
        """Canonical JSON of all that decides the result: two runs alike in it are one run."""
        values = self.model_dump(mode="json", exclude={"id", "study"})
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 of `parameters`, in hex."""
        return hashlib.sha256(self.parameters.encode()).hexdigest()


class Cell(Strict):
    """A cell of a table: one method with one buffer under one protocol, and its runs by seed."""

    method: str
    buffer: int | None
    protocol: Protocol
    runs: dict[int, str]


class Table(Strict):
    """A table in the shape of the paper's Tables 1-3."""

    name: str
    title: str
    experiment: str
    benchmark: str
    source: str
    buffers: list[int]
    cells: list[Cell]


class Plan(Strict):
    """What a study stands for: its runs, each once, and the tables made of them."""

    study: str
    title: str
    runs: dict[str, Run]
    tables: dict[str, Table]

    @property
    def sources(self) -> list[str]:
        """The sources its runs start from."""
        return sorted({run.source for run in self.runs.values()})

    @property
    def data(self) -> list[str]:
        """The data sets its runs train on."""
        return sorted({run.data for run in self.runs.values()})


def expand(params: Params, study_name: str) -> Plan:
    """Expand a study to its runs and tables.

    A run serves each cell that needs exactly its parameters, under both protocols and in any
    experiment. Its identifier says benchmark, method, buffer, source where it is not the
    benchmark's own, `task-il` where it has Task-IL's hyperparameters and they differ from
    Class-IL's, and seed.
    """
    study = params.named_study(study_name)
    runs: dict[str, Run] = {}
    known: dict[str, str] = {}  # parameters -> identifier
    tables: dict[str, Table] = {}

    def run_for(*cell: object) -> str:
        run = _run(params, study_name, *cell)  # type: ignore[arg-type]
        identifier = known.setdefault(run.parameters, run.id)
        if runs.setdefault(identifier, run).parameters != run.parameters:
            raise UserError(f"two different runs are both called {identifier}")
        return identifier

    for experiment_name, experiment in study.experiments.items():
        for name in experiment.benchmarks:
            benchmark = params.benchmarks[name]
            cells = [
                Cell(
                    method=method,
                    buffer=buffer,
                    protocol=protocol,
                    runs={
                        seed: run_for(experiment, name, method, buffer, protocol, seed)
                        for seed in experiment.seeds or study.seeds
                    },
                )
                for method in experiment.methods
                for buffer in (benchmark.buffers if METHODS[method].rehearsal else [None])
                for protocol in PROTOCOLS
            ]
            table = Table(
                name=f"{experiment_name}.{name}",
                title=f"{experiment.title}: {benchmark.title}",
                experiment=experiment_name,
                benchmark=name,
                source=experiment.source or benchmark.source,
                buffers=benchmark.buffers,
                cells=cells,
            )
            tables[table.name] = table
    return Plan(study=study_name, title=study.title, runs=runs, tables=tables)


def _run(
    params: Params,
    study: str,
    experiment: Experiment,
    benchmark_name: str,
    method: str,
    buffer: int | None,
    protocol: Protocol,
    seed: int,
) -> Run:
    """The run that one cell needs for one seed."""
    benchmark = params.benchmarks[benchmark_name]
    source = experiment.source or benchmark.source
    parts = [benchmark_name, method]
    if buffer is not None:
        parts.append(str(buffer))
    if source != benchmark.source:
        parts.append(f"from-{source}")
    if protocol == "task-il":  # dropped by `expand` where Class-IL's run is the same
        parts.append(protocol)
    parts.append(f"s{seed}")
    data = params.datasets[benchmark.data]
    return Run(
        id=".".join(parts),
        study=study,
        benchmark=benchmark_name,
        data=benchmark.data,
        classes=data.classes,
        tasks=benchmark.tasks,
        source=source,
        network=params.sources[source].network,
        augmentation=data.augmentation,
        method=method,
        buffer=buffer,
        hyperparameters=benchmark.hyperparameters(method, buffer, protocol).model_dump(),
        epochs=benchmark.epochs,
        batch_size=benchmark.batch_size,
        lr_decay=benchmark.lr_decay,
        seed=seed,
    )
