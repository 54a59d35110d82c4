"""From `params.yaml` to the runs, tables and searches of a study.

Snakemake, DVC's stages, the command line, the tables and the tests all ask `expand`; nothing else
lists methods or cells.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from twf.errors import UserError
from twf.study.grids import Best, load_best_hyperparameters, points
from twf.study.methods import METHODS
from twf.study.params import Params, Protocol, Variant
from twf.study.plan import Cell, Plan, Run, SearchCell, Table, Trial

Position = tuple[str, int | None, Protocol]  # method, buffer and protocol of a number


def expand(params: Params, study_name: str) -> Plan:
    """Expand a study to its runs, tables and searches.

    A run serves each cell that needs exactly its parameters, under both protocols and in any
    experiment; it is probed where one of them asks for it. Its identifier says benchmark, method,
    buffer (0 where a rehearsal method has none), source where it is not the benchmark's own,
    variant where that changes something, `trial-` and a hash of the hyperparameters in a search,
    `task-il` where no earlier cell has the same run under Class-IL, and seed.
    """
    study = params.named_study(study_name)
    best = load_best_hyperparameters(study.best_hyperparameters, study_name)
    runs, probed = _Runs(study_name), set[str]()
    tables, search = dict[str, Table](), list[SearchCell]()
    searched = dict[tuple[str, str], str]()  # the experiment that does, by cell
    for experiment_name, experiment in study.experiments.items():
        for benchmark_name in experiment.benchmarks:
            grid = _Grid(params, study_name, experiment_name, benchmark_name, best, runs)
            if experiment.search is not None:
                for cell in grid.searched_cells():
                    search.append(cell)
                    first = searched.setdefault((benchmark_name, cell.name), experiment_name)
                    if first != experiment_name:
                        raise UserError(
                            f"studies.{study_name}.experiments: {first} and {experiment_name} both "
                            f"search for the hyperparameters of {cell.name} on {benchmark_name}: "
                            "leave it to one"
                        )
                continue
            table = grid.table()
            tables[table.name] = table
            if experiment.probes:
                probed.update(run for cell in table.cells for run in cell.runs.values())
    _require_one_run_each(study_name, tables.values())
    for name in probed:
        run = runs.by_name[name]
        changes = {"probes": True} | _source_data(params, run.source, "a probe")
        runs.by_name[name] = run.model_copy(update=changes)
    return Plan(
        params=params,
        study=study_name,
        title=study.title,
        note=study.note,
        runs=runs.by_name,
        tables=tables,
        search=search,
    )


class _Runs:
    """The runs of a study so far, each once."""

    def __init__(self, study: str) -> None:
        self.study = study
        self.by_name: dict[str, Run] = {}
        self._names: dict[str, str] = {}  # by parameters

    def name_of(self, run: Run) -> str:
        """The identifier of the run with these parameters: that of the first cell that needs it."""
        name = self._names.setdefault(run.parameters, run.id)
        other = self.by_name.setdefault(name, run)
        if other.parameters != run.parameters:
            old, new = other.values, run.values
            raise UserError(
                f"studies.{self.study}: two different runs are both called {name}, and differ in "
                f"{', '.join(key for key in new if new[key] != old[key])}; give variants of "
                "different experiments different names, or put one experiment into another study"
            )
        return name


class _Grid:
    """An experiment on one of its benchmarks."""

    def __init__(
        self,
        params: Params,
        study_name: str,
        experiment_name: str,
        benchmark_name: str,
        best: Best,
        runs: _Runs,
    ) -> None:
        self.params, self.best, self.runs = params, best, runs
        self.study_name, self.study = study_name, params.named_study(study_name)
        self.experiment_name = experiment_name
        self.experiment = self.study.experiments[experiment_name]
        self.benchmark_name = benchmark_name
        self.benchmark = params.benchmark(benchmark_name, study_name)
        self.source = self.experiment.source or self.benchmark.source
        self.path = f"studies.{study_name}.experiments.{experiment_name}"

    def table(self) -> Table:
        own = self.params.benchmarks[self.benchmark_name]
        return Table(
            name=f"{self.experiment_name}.{self.benchmark_name}",
            title=f"{self.experiment.title}: {own.title}",
            experiment=self.experiment_name,
            benchmark=self.benchmark_name,
            source=self.source,
            paper_source=self.experiment.source or own.source,
            reduced=self.benchmark_name in self.study.scale,
            cells=[self._cell(position, variant) for position, variant in self._positions()],
            variants={key: variant.title for key, variant in self.experiment.variants.items()},
            baseline=self.experiment.baseline,
            forgetting=self.params.switches(self.study_name)["F8"],
        )

    def searched_cells(self) -> list[SearchCell]:
        return [self._searched_cell(position) for position, _ in self._positions()]

    def _positions(self) -> Iterator[tuple[Position, str | None]]:
        """The position and the variant of each cell, in order."""
        sizes = self.experiment.buffers or self.benchmark.buffers
        for method in self.experiment.methods:
            info = METHODS[method]
            for name in self.experiment.variants or [None]:
                variant = self._variant(name)
                if method not in (variant.methods or self.experiment.methods):
                    continue
                without = not info.rehearsal or (variant.without_buffer and info.without_buffer)
                buffers: list[int | None] = [None] if without else []
                for buffer in [*buffers, *sizes] if info.rehearsal else buffers:
                    for protocol in self.experiment.protocols:
                        yield (method, buffer, protocol), name

    def _variant(self, name: str | None) -> Variant:
        return Variant(title="") if name is None else self.experiment.variants[name]

    def _searched(self, position: Position) -> dict[str, int | float]:
        return self.best.get((self.benchmark_name, *position), {})

    def _cell(self, position: Position, name: str | None) -> Cell:
        run, as_set = self._run(position, name), self._run(position, None)
        method, buffer, protocol = position
        searched = self._searched(position).keys() - self._variant(name).hyperparameters.keys()
        return Cell(
            method=method,
            variant=name,
            buffer=buffer,
            protocol=protocol,
            unchanged=run.parameters == as_set.parameters,
            retuned=run.hyperparameters != as_set.hyperparameters,
            searched=sorted(searched),
            runs=self._by_seed(run),
        )

    def _searched_cell(self, position: Position) -> SearchCell:
        search, run = self.experiment.search, self._run(position, None)
        assert search is not None  # who calls this has looked
        method, buffer, protocol = position
        trials = []
        where = f"{self.path}.search.grids.{method}"
        for values in points(search, method, run.hyperparameters, where):
            text = json.dumps(values.model_dump(), sort_keys=True)
            trial = f"trial-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
            changes = {
                "id": f"{run.id.removesuffix('.task-il')}.{trial}",
                "hyperparameters": values,
                "held_out": search.held_out,
            }
            runs = self._by_seed(run.model_copy(update=changes))
            trials.append(Trial(hyperparameters=values, runs=runs))
        return SearchCell(
            benchmark=self.benchmark_name,
            method=method,
            buffer=buffer,
            protocol=protocol,
            as_set=run.hyperparameters,
            named=list(search.grids[method]),
            trials=trials,
        )

    def _by_seed(self, run: Run) -> dict[int, str]:
        """The identifier of a run with each of the experiment's seeds."""
        seeded = {
            seed: run.model_copy(update={"id": f"{run.id}.s{seed}", "seed": seed})
            for seed in self.experiment.seeds or self.study.seeds
        }
        return {seed: self.runs.name_of(run) for seed, run in seeded.items()}

    def _run(self, position: Position, name: str | None) -> Run:
        """The run that one cell needs, its seed still to be set."""
        params, benchmark, source = self.params, self.benchmark, self.source
        (method_name, buffer, protocol), variant = position, self._variant(name)
        method, data = METHODS[method_name], params.datasets[benchmark.data]
        fidelity = params.switches(self.study_name) | variant.fidelity
        parts = [self.benchmark_name, method_name]
        if method.rehearsal:
            parts.append(str(buffer or 0))
        if source != benchmark.source:
            parts.append(f"from-{source}")
        if variant.changes:
            parts.append(str(name))
        if protocol == "task-il":  # where no earlier cell has this run: see `expand`
            parts.append(protocol)
        source_data: dict[str, Any] = {"source_data": None, "source_augmentation": None}
        if method.source_data:
            source_data = _source_data(params, source, method_name)
        return Run(
            id=".".join(parts),
            study=self.study_name,
            benchmark=self.benchmark_name,
            data=benchmark.data,
            classes=data.classes,
            tasks=benchmark.tasks,
            source=source,
            network=params.sources[source].network,
            augmentation=data.augmentation,
            method=method_name,
            buffer=buffer,
            pretrained=variant.pretrained,
            probes=False,
            **source_data,
            fidelity={switch: fidelity[switch] for switch in method.switches},
            hyperparameters=benchmark.hyperparameters(*position)
            .changed(self._searched(position), str(self.study.best_hyperparameters))
            .changed(variant.hyperparameters, f"{self.path}.variants.{name}.hyperparameters"),
            epochs=benchmark.epochs,
            batch_size=benchmark.batch_size,
            lr_decay=benchmark.lr_decay,
            precision=self.study.precision,
            held_out=None,
            seed=0,
        )


def _source_data(params: Params, source: str, user: str) -> dict[str, Any]:
    """What a run that needs the source's images has to know of them."""
    data = params.sources[source].data
    if data is None:
        raise UserError(
            f"{user} needs the images of {source}, which has published weights and no data; leave "
            "it out, or give the experiment another source"
        )
    return {"source_data": data, "source_augmentation": params.datasets[data].augmentation}


def _require_one_run_each(study: str, tables: Iterable[Table]) -> None:
    """Raise `UserError` where a number has different runs in two tables: a mean would mix them.

    A variant that changes nothing is the method as it is too.
    """
    known: dict[tuple[Any, ...], tuple[str, str]] = {}
    for table in tables:
        for cell in table.cells:
            for variant in {cell.variant, None} if cell.unchanged else {cell.variant}:
                number = table.benchmark, table.paper_source, variant
                for seed, run in cell.runs.items():
                    key = *number, cell.method, cell.buffer, cell.protocol, seed
                    other_table, other = known.setdefault(key, (table.experiment, run))
                    if other != run:
                        raise UserError(
                            f"studies.{study}.experiments: {cell.name} on {table.benchmark} is "
                            f"{other} in {other_table} and {run} in {table.experiment}: name a "
                            "variant for what differs, or make another study of one"
                        )
