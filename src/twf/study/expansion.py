"""From `params.yaml` to the runs, tables and searches of a study.

Snakemake, DVC's stages, the command line, the tables and the tests all ask `expand`; nothing else
lists methods or cells.
"""

import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from twf.errors import UserError
from twf.study.methods import METHODS
from twf.study.params import (
    Benchmark,
    Experiment,
    MethodName,
    Name,
    Params,
    Protocol,
    Search,
    Variant,
)
from twf.study.plan import Cell, Plan, Position, Run, SearchCell, Table, Trial
from twf.study.reading import plain_values
from twf.study.types import Count, Hyperparameters, Strict


class BestHyperparameters(Strict):
    """The hyperparameters that a search found for one cell; others stay as in params.yaml."""

    benchmark: Name
    method: MethodName
    buffer: Count | None
    protocol: Protocol
    hyperparameters: dict[str, int | float]


def expand(params: Params, study_name: str) -> Plan:
    """Expand a study to its runs, tables and searches.

    A run serves each cell that needs exactly its parameters, under both protocols and in any
    experiment; it is probed where one of them asks for it. Its identifier says benchmark, method,
    buffer (0 where a rehearsal method has none), source where it is not the benchmark's own,
    variant where that changes something, `trial-` and a hash of the hyperparameters in a search,
    `task-il` where no earlier cell has the same run under Class-IL, and seed.
    """
    study = params.named_study(study_name)
    expansion = _Expansion(params, study_name)
    tables, search, probed = dict[str, Table](), list[SearchCell](), set[str]()
    for experiment_name, experiment in study.experiments.items():
        for benchmark in experiment.benchmarks:
            grid = _Grid(expansion, experiment_name, benchmark)
            if experiment.search is not None:
                search += grid.searched_cells(experiment.search)
                continue
            table = grid.table()
            tables[table.name] = table
            if experiment.probes:
                probed.update(run for cell in table.cells for run in cell.runs.values())
    runs = expansion.runs
    for name in probed:
        changes = {"probes": True} | _source_data(params, runs[name].source, "a probe")
        runs[name] = runs[name].model_copy(update=changes)
    return Plan(
        params=params,
        study=study_name,
        title=study.title,
        note=study.note,
        runs=runs,
        tables=tables,
        search=search,
    )


class _Expansion:
    """The runs of a study so far, each once, and what stands for what."""

    def __init__(self, params: Params, study: str) -> None:
        self.params, self.study = params, study
        self.best = load_best_hyperparameters(params.studies[study].best_hyperparameters, study)
        self.runs: dict[str, Run] = {}
        self._names: dict[str, str] = {}  # by parameters
        self._numbers: dict[tuple[Any, ...], tuple[str, str]] = {}  # an experiment and its run

    def name_of(self, run: Run) -> str:
        """The identifier of the run with these parameters: that of the first cell that needs it."""
        name = self._names.setdefault(run.parameters, run.id)
        other = self.runs.setdefault(name, run)
        if other.parameters != run.parameters:
            old, new = other.values, run.values
            raise UserError(
                f"studies.{self.study}: two different runs are both called {name}, and differ in "
                f"{', '.join(key for key in new if new[key] != old[key])}; give variants of "
                "different experiments different names, or put one experiment into another study"
            )
        return name

    def require_one(self, experiment: str, run: str, what: str, *number: Any) -> None:
        """Raise `UserError` where a number has another run already: a mean would mix the two."""
        first, other = self._numbers.setdefault(number, (experiment, run))
        if other != run:
            raise UserError(
                f"studies.{self.study}.experiments: {first} and {experiment} both have {what}, by "
                "different runs: name a variant for what differs, leave it to one, or make another "
                "study of one"
            )


class _Grid:
    """An experiment on one of its benchmarks."""

    def __init__(self, expansion: _Expansion, name: str, benchmark: str) -> None:
        self.expansion, self.params = expansion, expansion.params
        self.study = self.params.studies[expansion.study]
        self.name, self.benchmark_name = name, benchmark
        self.experiment: Experiment = self.study.experiments[name]
        self.benchmark: Benchmark = self.params.benchmark(benchmark, expansion.study)
        self.source = self.experiment.source or self.benchmark.source
        self.own = self.params.benchmarks[benchmark]  # where the study scales it down
        self.paper_source = self.experiment.source or self.own.source
        self.path = f"studies.{expansion.study}.experiments.{name}"

    def table(self) -> Table:
        return Table(
            name=f"{self.name}.{self.benchmark_name}",
            title=f"{self.experiment.title}: {self.own.title}",
            experiment=self.name,
            benchmark=self.benchmark_name,
            source=self.source,
            paper_source=self.paper_source,
            reduced=self.benchmark_name in self.study.scale,
            cells=[self._cell(position) for position in self._positions()],
            variants={key: variant.title for key, variant in self.experiment.variants.items()},
            forgetting=self.params.switches(self.expansion.study)["F8"],
        )

    def _positions(self) -> Iterator[Position]:
        sizes = self.experiment.buffers or self.benchmark.buffers
        names = self.experiment.variants or [None]
        for method, name in itertools.product(self.experiment.methods, names):
            info, variant = METHODS[method], self._variant(name)
            if method not in (variant.methods or self.experiment.methods):
                continue
            buffers: list[int | None] = [*sizes] if info.rehearsal else []
            if not info.rehearsal or (variant.without_buffer and info.without_buffer):
                buffers.insert(0, None)
            for buffer, protocol in itertools.product(buffers, self.experiment.protocols):
                yield Position(method=method, variant=name, buffer=buffer, protocol=protocol)

    def _variant(self, name: str | None) -> Variant:
        return Variant(title="") if name is None else self.experiment.variants[name]

    def _best(self, cell: Position) -> dict[str, int | float]:
        key = self.benchmark_name, cell.method, cell.buffer, cell.protocol
        return self.expansion.best.get(key, {})

    def _cell(self, position: Position) -> Cell:
        as_set = self._run(position.model_copy(update={"variant": None}))
        run = self._run(position)
        unchanged = run.parameters == as_set.parameters
        runs = self._by_seed(run)
        for seed, name in runs.items():
            for variant in {position.variant, None} if unchanged else {position.variant}:
                at = position.model_copy(update={"variant": variant})
                number = self.benchmark_name, self.paper_source, at.name, seed
                what = f"{position.name} on {self.benchmark_name}"
                self.expansion.require_one(self.name, name, what, *number)
        own = self._variant(position.variant).hyperparameters
        return Cell(
            **position.model_dump(),
            unchanged=unchanged,
            retuned=run.hyperparameters != as_set.hyperparameters,
            searched=sorted(self._best(position).keys() - own.keys()),
            runs=runs,
        )

    def searched_cells(self, search: Search) -> Iterator[SearchCell]:
        for position in self._positions():
            run, where = self._run(position), f"{self.path}.search.grids.{position.method}"
            what = f"a search for {position.name} on {self.benchmark_name}"
            self.expansion.require_one(self.name, self.name, what, what)
            trials = []
            for values in points(search, position.method, run.hyperparameters, where):
                text = json.dumps(values.model_dump(), sort_keys=True)
                trial = f"trial-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
                changes = {
                    "id": f"{run.id.removesuffix('.task-il')}.{trial}",
                    "hyperparameters": values,
                    "held_out": search.held_out,
                }
                runs = self._by_seed(run.model_copy(update=changes))
                trials.append(Trial(hyperparameters=values, runs=runs))
            yield SearchCell(
                **position.model_dump(),
                benchmark=self.benchmark_name,
                as_set=run.hyperparameters,
                named=list(search.grids[position.method]),
                trials=trials,
            )

    def _by_seed(self, run: Run) -> dict[int, str]:
        """The identifier of a run with each of the experiment's seeds."""
        return {
            seed: self.expansion.name_of(
                run.model_copy(update={"id": f"{run.id}.s{seed}", "seed": seed})
            )
            for seed in self.experiment.seeds or self.study.seeds
        }

    def _run(self, cell: Position) -> Run:
        """The run that one cell needs, its seed still to be set."""
        params, benchmark, source = self.params, self.benchmark, self.source
        variant, method = self._variant(cell.variant), METHODS[cell.method]
        data = params.datasets[benchmark.data]
        fidelity = params.switches(self.expansion.study) | variant.fidelity
        changed = variant.fidelity or variant.hyperparameters or not variant.pretrained
        parts = [
            self.benchmark_name,
            cell.method,
            str(cell.buffer or 0) if method.rehearsal else None,
            f"from-{source}" if source != benchmark.source else None,
            cell.variant if changed else None,
            # where no earlier cell has this run: see `expand`
            cell.protocol if cell.protocol == "task-il" else None,
        ]
        source_data: dict[str, Any] = {"source_data": None, "source_augmentation": None}
        if method.source_data:
            source_data = _source_data(params, source, cell.method)
        return Run(
            id=".".join(filter(None, parts)),
            study=self.expansion.study,
            benchmark=self.benchmark_name,
            data=benchmark.data,
            classes=data.classes,
            tasks=benchmark.tasks,
            source=source,
            network=params.sources[source].network,
            augmentation=data.augmentation,
            method=cell.method,
            buffer=cell.buffer,
            pretrained=variant.pretrained,
            probes=False,
            **source_data,
            fidelity={switch: fidelity[switch] for switch in method.switches},
            hyperparameters=benchmark.hyperparameters(cell.method, cell.buffer, cell.protocol)
            .changed(self._best(cell), str(self.study.best_hyperparameters))
            .changed(variant.hyperparameters, f"{self.path}.variants.{cell.variant}"),
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


def points(search: Search, method: str, base: Hyperparameters, where: str) -> list[Hyperparameters]:
    """The hyperparameters to try for one cell, of which `base` are those that params.yaml has.

    Every combination of the grid's values; what it does not name stays as in `base`. Where these
    are more than `search.points`, `base` and a random choice of the others, always the same (random
    search; Bergstra and Bengio, JMLR 2012). Raises `UserError`, with the grid's path `where`, for
    values that the method cannot have.
    """
    grid = search.grids[method]
    combinations = itertools.product(*grid.values())
    every = [base.changed(dict(zip(grid, values, strict=True)), where) for values in combinations]
    tried = list({values.model_dump_json(): values for values in every}.values())  # each once
    if search.points is None or len(tried) <= search.points:
        return tried
    others = [values for values in tried if values != base]
    return [base, *random.Random(0).sample(others, search.points - 1)]


Best = dict[tuple[str, str, int | None, Protocol], dict[str, int | float]]  # by a cell's position


def load_best_hyperparameters(path: str | None, study: str) -> Best:
    """What a search found; nothing where the study names no file.

    Raises `UserError` where the file is missing, is not what `twf search` writes, or has nothing.
    """
    if path is None:
        return {}
    where = f"studies.{study}.best_hyperparameters: {path}"
    try:
        values = plain_values(Path(path).read_text(encoding="utf-8"), Path(path))
        entries = TypeAdapter(list[BestHyperparameters]).validate_python(values)
    except FileNotFoundError:
        raise UserError(f"{where} is not there: snakemake --cores all {path}") from None
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UserError(f"{where} is not what `twf search` writes: {error}") from None
    if not entries:
        raise UserError(f"{where} has no hyperparameters: all trials of its search diverged")
    return {(e.benchmark, e.method, e.buffer, e.protocol): e.hyperparameters for e in entries}
