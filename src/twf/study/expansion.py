"""From `params.yaml` to the runs, tables and searches of a study; nothing else lists cells."""

import random
from collections.abc import Hashable, Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from twf.errors import UserError, explain
from twf.files import search_files
from twf.study.methods import METHODS
from twf.study.params import MethodName, Params, Protocol, Search, Variant
from twf.study.plan import Cell, Plan, Position, Run, SearchCell, Table, Trial
from twf.study.products import digest
from twf.study.reading import plain_values
from twf.study.types import Hyperparameters

AS_SET = Variant(title="")  # changes nothing


class BestHyperparameters(Position):
    """The hyperparameters that a search found for one cell; others stay as in params.yaml."""

    benchmark: str
    method: MethodName
    hyperparameters: dict[str, int | float]


def expand(params: Params, study_name: str) -> Plan:
    """Expand a study to its runs, tables and searches.

    A run serves each cell that needs exactly its parameters, under both protocols and in any
    experiment; it is probed where one of them asks for it. Its identifier says benchmark, method,
    buffer (0 where a rehearsal method has none), source if not the benchmark's own, variant if that
    changes something, `trial-` and a hash of a trial's hyperparameters, `task-il` if Class-IL has
    other hyperparameters, and seed.
    """
    expansion = _Expansion(params, study_name)
    runs, study = expansion.runs, expansion.study
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
    for name in probed:
        changes = {"probes": True} | _source_data(params, runs[name].source, "a probe")
        runs[name] = runs[name].model_copy(update=changes)
    found: dict[str, Any] = {"runs": runs, "tables": tables, "search": search}
    return Plan(params=params, study=study_name, title=study.title, note=study.note, **found)


class _Expansion:
    """The runs of a study so far, each once, and what stands for what."""

    def __init__(self, params: Params, study: str) -> None:
        self.params, self.study, self.study_name = params, params.named_study(study), study
        self.best = load_best_hyperparameters(self.study.best_hyperparameters, study)
        self.runs: dict[str, Run] = {}
        self.names: dict[str, str] = {}  # by digest
        self.claims: dict[Hashable, tuple[str, str]] = {}  # an experiment, and its run


class _Grid:
    """An experiment on one of its benchmarks."""

    def __init__(self, expansion: _Expansion, name: str, benchmark: str) -> None:
        self.expansion, self.params, self.study = expansion, expansion.params, expansion.study
        self.name, self.experiment = name, self.study.experiments[name]
        self.benchmark_name, self.own = benchmark, self.params.benchmarks[benchmark]
        self.benchmark = self.params.benchmark(benchmark, expansion.study_name)  # maybe scaled down
        self.source = self.experiment.source or self.benchmark.source
        self.paper_source = self.experiment.source or self.own.source
        self.path = f"studies.{expansion.study_name}.experiments"

    def _claim(self, thing: Hashable, run: str, what: str) -> None:
        """Raise `UserError` where something has another run already: a mean would mix the two."""
        first, other = self.expansion.claims.setdefault(thing, (self.name, run))
        if other != run:
            name_it = "" if self.experiment.search else "name a variant for what differs, or "
            raise UserError(
                f"{self.path}: {first} and {self.name} both have {what}, by different runs: "
                f"{name_it}make another study of one"
            )

    def _by_seed(self, run: Run) -> dict[int, str]:
        """The identifier of a run with each seed: that of the first cell that needs it."""
        named = {}
        for seed in self.experiment.seeds or self.study.seeds:
            seeded = run.model_copy(update={"id": f"{run.id}.s{seed}", "seed": seed})
            named[seed] = name = self.expansion.names.setdefault(seeded.digest, seeded.id)
            self._claim(name, seeded.digest, name)
            self.expansion.runs.setdefault(name, seeded)
        return named

    def table(self) -> Table:
        return Table(
            name=f"{self.name}.{self.benchmark_name}",
            title=f"{self.experiment.title}: {self.own.title}",
            experiment=self.name,
            benchmark=self.benchmark_name,
            source=self.source,
            paper_source=self.paper_source,
            reduced=self.benchmark_name in self.study.scale,
            cells=[self._cell(*position) for position in self._positions()],
            variants={key: variant.title for key, variant in self.experiment.variants.items()},
            forgetting=self.params.switches(self.expansion.study_name)["F8"],
        )

    def _positions(self) -> Iterator[tuple[Position, Variant]]:
        variants: dict[Any, Variant] = self.experiment.variants or {None: AS_SET}
        for method, (name, variant) in product(self.experiment.methods, variants.items()):
            if method not in (variant.methods or self.experiment.methods):
                continue
            info = METHODS[method]
            buffers: list[int | None] = []
            if not info.rehearsal or (variant.without_buffer and info.without_buffer):
                buffers += [None]
            if info.rehearsal:
                buffers += self.experiment.buffers or self.benchmark.buffers
            for buffer, protocol in product(buffers, self.experiment.protocols):
                at = Position(method=method, variant=name, buffer=buffer, protocol=protocol)
                yield at, variant

    def _best(self, at: Position) -> dict[str, int | float]:
        key = self.benchmark_name, at.method, at.buffer, at.protocol
        return self.expansion.best.get(key, {})

    def _cell(self, at: Position, variant: Variant) -> Cell:
        as_set, run = self._run(at, AS_SET), self._run(at, variant)
        unchanged = run.digest == as_set.digest
        runs = self._by_seed(run)
        what = f"{at.name} on {self.benchmark_name}"
        for seed, name in runs.items():
            for called in {at.variant, None} if unchanged else {at.variant}:
                place = at.model_copy(update={"variant": called})
                self._claim((self.benchmark_name, self.paper_source, place, seed), name, what)
        return Cell(
            **at.model_dump(),
            unchanged=unchanged,
            retuned=run.hyperparameters != as_set.hyperparameters,
            searched=sorted(self._best(at).keys() - variant.hyperparameters.keys()),
            runs=runs,
        )

    def searched_cells(self, search: Search) -> Iterator[SearchCell]:
        for at, variant in self._positions():
            run, where = self._run(at, variant), f"{self.path}.{self.name}.search.grids.{at.method}"
            cell = at.model_copy(update={"variant": None})  # what another study takes the best of
            what = f"a search for {cell.name} on {self.benchmark_name}"
            self._claim((self.benchmark_name, cell), f"{self.name} {at.variant}", what)
            trials = []
            for values in points(search, at.method, run.hyperparameters, where):
                trial = f"trial-{digest(values.model_dump())[:8]}"
                changes = {
                    "id": f"{run.id.removesuffix('.task-il')}.{trial}",
                    "hyperparameters": values,
                    "held_out": search.held_out,
                }
                runs = self._by_seed(run.model_copy(update=changes))
                trials.append(Trial(hyperparameters=values, runs=runs))
            yield SearchCell(
                **at.model_dump(),
                benchmark=self.benchmark_name,
                as_set=run.hyperparameters,
                named=list(search.grids.get(at.method, {})),
                trials=trials,
            )

    def _hyperparameters(self, at: Position, variant: Variant) -> Hyperparameters:
        where = f"{self.path}.{self.name}.variants.{at.variant}"
        as_set = self.benchmark.hyperparameters(at.method, at.buffer, at.protocol)
        best = as_set.changed(self._best(at), str(self.study.best_hyperparameters))
        return best.changed(variant.hyperparameters, where)

    def _run(self, at: Position, variant: Variant) -> Run:
        """The run that one cell needs, its seed still to be set."""
        params, benchmark, source = self.params, self.benchmark, self.source
        method, data = METHODS[at.method], params.datasets[benchmark.data]
        fidelity = params.switches(self.expansion.study_name) | variant.fidelity
        changed = variant.fidelity or variant.hyperparameters or not variant.pretrained
        hyperparameters = self._hyperparameters(at, variant)
        class_il = self._hyperparameters(at.model_copy(update={"protocol": "class-il"}), variant)
        parts = [
            self.benchmark_name,
            at.method,
            str(at.buffer or 0) if method.rehearsal else None,
            f"from-{source}" if source != benchmark.source else None,
            at.variant if changed else None,
            "task-il" if hyperparameters != class_il else None,
        ]
        return Run(
            id=".".join(filter(None, parts)),
            study=self.expansion.study_name,
            benchmark=self.benchmark_name,
            data=benchmark.data,
            classes=data.classes,
            tasks=benchmark.tasks,
            source=source,
            network=params.sources[source].network,
            augmentation=data.augmentation,
            method=at.method,
            buffer=at.buffer,
            pretrained=variant.pretrained,
            **(_source_data(params, source, at.method) if method.source_data else {}),
            fidelity={switch: fidelity[switch] for switch in method.switches},
            hyperparameters=hyperparameters,
            epochs=benchmark.epochs,
            batch_size=benchmark.batch_size,
            lr_decay=benchmark.lr_decay,
            precision=self.study.precision,
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

    Every combination of the grid's values; if more than `search.points`, `base` and a random choice
    of the others, always the same (random search; Bergstra and Bengio, JMLR 2012). Raises
    `UserError`, with the grid's path `where`, for values that the method cannot have.
    """
    grid = search.grids.get(method, {})
    combinations = product(*grid.values())
    tried = [base.changed(dict(zip(grid, values, strict=True)), where) for values in combinations]
    if search.points is None or len(tried) <= search.points:
        return tried
    others = [values for values in tried if values != base]
    return [base, *random.Random(0).sample(others, search.points - 1)]


Best = dict[tuple[str, str, int | None, Protocol], dict[str, int | float]]  # by a cell's position
_entries = TypeAdapter(Annotated[list[BestHyperparameters], Field(min_length=1)])


def load_best_hyperparameters(path: str | None, study: str) -> Best:
    """What a search found, if the study names its file. Raises `UserError` if that has nothing."""
    if path is None:
        return {}
    where = f"studies.{study}.best_hyperparameters: {path}"
    if Path(path) == search_files(study)[1]:
        raise UserError(f"{where} is of its own search: name it in another study")
    try:
        entries = _entries.validate_python(plain_values(Path(path).read_bytes(), Path(path)))
    except FileNotFoundError:
        remedy = "correct its name"
        if Path(path).name == "best-hyperparameters.yaml":  # of a search
            remedy = f"snakemake --cores all {path}"
        raise UserError(f"{where} is not there: {remedy}") from None
    except ValidationError as error:
        what = "is not what `twf search` writes, or all trials of its search diverged"
        raise UserError(f"{where} {what}: {'; '.join(explain(error))}") from None
    best: Best = {}
    for entry in entries:
        cell = entry.benchmark, entry.method, entry.buffer, entry.protocol
        if best.setdefault(cell, entry.hyperparameters) is not entry.hyperparameters:
            raise UserError(f"{where} has {entry.method} on {entry.benchmark} twice: keep one")
    return best
