"""The runs and tables that a study stands for.

Snakemake, DVC's stages, the command line, the tables and the tests all ask `expand`; nothing else
lists methods or cells. No torch here: planning starts at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from itertools import product
from typing import Any

from pydantic import SerializeAsAny, model_validator

from twf.errors import UserError, lookup
from twf.study.grids import Best, load_best_hyperparameters, points
from twf.study.methods import METHODS
from twf.study.params import (
    Augmentation,
    Experiment,
    LrDecay,
    Network,
    Params,
    Precision,
    Protocol,
    Search,
    Variant,
)
from twf.study.types import Fidelity, Hyperparameters, Strict


class Run(Strict):
    """One continual-learning run: all that `params.yaml` says of it."""

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
    pretrained: bool
    probes: bool
    source_data: str | None  # where the run needs the source's images too
    source_augmentation: Augmentation | None
    fidelity: dict[str, Fidelity]  # of the switches that the method's code asks for
    hyperparameters: SerializeAsAny[Hyperparameters]
    epochs: int
    batch_size: int
    lr_decay: LrDecay | None
    precision: Precision
    held_out: float | None  # share of the training set to evaluate on, in place of the test set
    seed: int

    @model_validator(mode="before")
    @classmethod
    def _hyperparameters_of_its_method(cls, values: Any) -> Any:
        """Of plain values, as a record has them: the method says what they are."""
        plain = values.get("hyperparameters")
        if isinstance(plain, dict):
            typed = METHODS[values["method"]].hyperparameters(**plain)
            return values | {"hyperparameters": typed}
        return values

    @property
    def phases(self) -> int:
        """What it trains one after another: the tasks, or all of them at once."""
        return 1 if METHODS[self.method].at_once else self.tasks

    @property
    def stream_batch(self) -> int:
        """The stream's images in a step, of which a method may have a number of its own."""
        return int(getattr(self.hyperparameters, "batch_size", self.batch_size))

    @property
    def values(self) -> dict[str, Any]:
        """All but its names, as plain values: two runs alike in them are one run."""
        return self.model_dump(mode="json", exclude={"id", "study"})

    @property
    def parameters(self) -> str:
        """Canonical JSON of `values`."""
        return json.dumps(self.values, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 of `parameters`, in hex."""
        return hashlib.sha256(self.parameters.encode()).hexdigest()


class Cell(Strict):
    """A cell of a table: one row and column under one protocol, and its runs by seed."""

    method: str
    variant: str | None
    unchanged: bool  # it is the method as params.yaml has it: the variant, if any, changes nothing
    retuned: bool  # the variant changes hyperparameters
    searched: list[str]  # those of its hyperparameters that a search has chosen
    buffer: int | None
    protocol: Protocol
    runs: dict[int, str]

    @property
    def name(self) -> str:
        """What tells it from the others of its table, in a word."""
        return _name(self.method, self.variant, self.buffer, self.protocol)


def _name(*parts: str | int | None) -> str:
    return ".".join(str(part) for part in parts if part is not None)


class Table(Strict):
    """A table in the shape of the paper's Tables 1-3: methods, or variants of them, by buffer."""

    name: str
    title: str
    experiment: str
    benchmark: str
    source: str
    paper_source: str  # that the paper's number is from; `source` where nothing is scaled
    reduced: bool  # the study scales its benchmark down
    cells: list[Cell]
    variants: dict[str, str]  # their titles
    baseline: str | None  # the method that each other one is compared with, in place of TwF
    forgetting: Fidelity  # F8: the definition that it shows

    @property
    def protocols(self) -> list[Protocol]:
        """The protocols of its cells."""
        return list(dict.fromkeys(cell.protocol for cell in self.cells))

    @property
    def buffers(self) -> list[int | None]:
        """The buffers of its rehearsal methods, in order; None is without one."""
        found = {cell.buffer for cell in self.cells if METHODS[cell.method].rehearsal}
        return sorted(found, key=lambda buffer: buffer or 0)

    @property
    def rows(self) -> dict[tuple[str, str | None], str]:
        """The title of each row, by method and variant, in the order of `METHODS`."""
        order = list(METHODS)
        return {
            (cell.method, cell.variant): METHODS[cell.method].title
            + ("" if cell.variant is None else f", {self.variants[cell.variant]}")
            for cell in sorted(self.cells, key=lambda cell: order.index(cell.method))
        }


class Trial(Strict):
    """Hyperparameters that a search tries, and their runs by seed."""

    hyperparameters: SerializeAsAny[Hyperparameters]
    runs: dict[int, str]


class SearchCell(Strict):
    """A cell whose hyperparameters are searched for."""

    experiment: str
    benchmark: str
    method: str
    buffer: int | None
    protocol: Protocol
    as_set: SerializeAsAny[Hyperparameters]  # those of params.yaml
    factors: dict[str, list[int | float]]  # those tried, where the search is for factors
    named: list[str]  # the hyperparameters that it searches for
    trials: list[Trial]

    @property
    def name(self) -> str:
        """What tells it from the others that are searched on its benchmark, in a word."""
        return _name(self.method, self.buffer, self.protocol)

    def searches_as(self, other: SearchCell) -> bool:
        """Whether another search is for the same cell, so that a study would have two answers."""
        return (self.benchmark, self.name) == (other.benchmark, other.name)


class Plan(Strict):
    """What a study stands for: its runs, each once, and what is made of them."""

    params: Params  # that it is expanded from
    study: str
    title: str
    note: str | None  # what a reader must know of its numbers
    experiment: str | None = None  # the only one, where it is of one
    runs: dict[str, Run]
    tables: dict[str, Table]
    search: list[SearchCell]

    @property
    def sources(self) -> list[str]:
        """The sources its runs start from."""
        return sorted({run.source for run in self.runs.values()})

    @property
    def data(self) -> list[str]:
        """The data sets its runs need."""
        needed = {run.data for run in self.runs.values()}
        needed |= {run.source_data for run in self.runs.values() if run.source_data is not None}
        return sorted(needed)

    def named_run(self, name: str) -> Run:
        """The run called `name`, or an error that says where they are listed."""
        listed = f"`twf plan {self.study}` lists its runs"
        return lookup("run", self.runs, name, f"study {self.study}", listed)

    def named_table(self, name: str) -> Table:
        """The table called `name`, or an error that says which there are."""
        return lookup("table", self.tables, name, f"study {self.study}")

    def runs_of(self, table: Table) -> list[str]:
        """The runs that a table is made of: its cells', and trials that say if a cell is tuned."""
        found = [run for cell in table.cells for run in cell.runs.values()]
        own = {(table.benchmark, cell.method, cell.buffer) for cell in table.cells}
        found += _trial_runs(
            cell
            for cell in self.search
            if METHODS[cell.method].not_printed
            and (cell.benchmark, cell.method, cell.buffer) in own
        )
        return list(dict.fromkeys(found))

    def runs_of_searches(self) -> list[str]:
        """The runs of all trials."""
        return _trial_runs(self.search)

    def only(self, experiment: str) -> Plan:
        """The part of the plan that makes one experiment's tables and searches.

        Runs keep the identifiers and probes that the whole study gives them. Raises `UserError`
        that names the experiments where there is no such one.
        """
        names = dict.fromkeys([t.experiment for t in self.tables.values()])
        names |= dict.fromkeys(cell.experiment for cell in self.search)
        lookup("experiment", names, experiment, f"study {self.study}")
        tables = {k: t for k, t in self.tables.items() if t.experiment == experiment}
        search = [cell for cell in self.search if cell.experiment == experiment]
        needed = {run for table in tables.values() for run in self.runs_of(table)}
        needed |= set(_trial_runs(search))
        runs = {name: run for name, run in self.runs.items() if name in needed}
        changes = {"experiment": experiment, "runs": runs, "tables": tables, "search": search}
        return self.model_copy(update=changes)


def needed_data(params: Params, plan: Plan) -> list[str]:
    """The data sets that a plan's runs and the training of its sources need, in order."""
    trained_on = {params.sources[name].trained_on for name in plan.sources}
    return sorted({*plan.data, *(data for data in trained_on if data is not None)})


def _trial_runs(cells: Iterable[SearchCell]) -> list[str]:
    runs = [run for cell in cells for trial in cell.trials for run in trial.runs.values()]
    return list(dict.fromkeys(runs))


def expand(params: Params, study_name: str) -> Plan:
    """Expand a study to its runs, tables and searches.

    A run serves each cell that needs exactly its parameters, under both protocols and in any
    experiment; it is probed where one of them asks for it. Its identifier says benchmark, method,
    buffer (0 where a rehearsal method has none), source where it is not the benchmark's own,
    variant where that changes something, `trial-` and a hash of the hyperparameters in a search,
    `task-il` where no earlier cell has the same run under Class-IL, and seed.
    """
    study = params.named_study(study_name)
    searched = load_best_hyperparameters(study.best_hyperparameters, study_name)
    runs: dict[str, Run] = {}
    known: dict[str, str] = {}  # parameters -> identifier
    tables: dict[str, Table] = {}
    search: list[SearchCell] = []
    probed: set[str] = set()

    def run_for(run: Run) -> str:
        identifier = known.setdefault(run.parameters, run.id)
        other = runs.setdefault(identifier, run)
        if other.parameters != run.parameters:
            of, before = run.values, other.values
            differ = [key for key in of if of[key] != before.get(key)] or ["what only one has"]
            raise UserError(
                f"studies.{study_name}: two different runs are both called {identifier}, and "
                f"differ in {', '.join(differ)}; give variants of different experiments different "
                "names, or put one experiment into another study"
            )
        return identifier

    def runs_for(run: Run, seeds: list[int]) -> dict[int, str]:
        return {seed: run_for(_with_seed(run, seed)) for seed in seeds}

    for experiment_name, experiment in study.experiments.items():
        seeds = experiment.seeds or study.seeds
        for name in experiment.benchmarks:
            cells = []
            sizes = experiment.buffers or params.benchmark(name, study_name).buffers
            rows = _rows(experiment, sizes)
            for (method, variant, buffer), protocol in product(rows, experiment.protocols):
                place: dict[str, Any] = {"method": method, "buffer": buffer, "protocol": protocol}
                run = _run(params, study_name, experiment, name, variant, searched, **place)
                if experiment.search is not None:
                    trials = [
                        Trial(
                            hyperparameters=values,
                            runs=runs_for(_trial(run, values, experiment.search), seeds),
                        )
                        for values in points(experiment.search, method, run.hyperparameters)
                    ]
                    cell = SearchCell(
                        experiment=experiment_name,
                        benchmark=name,
                        as_set=run.hyperparameters,
                        factors=experiment.search.factors,
                        named=list(
                            experiment.search.factors or experiment.search.grids.get(method, {})
                        ),
                        trials=trials,
                        **place,
                    )
                    before = [each for each in search if each.searches_as(cell)]
                    if before:
                        raise UserError(
                            f"studies.{study_name}.experiments: {before[0].experiment} and "
                            f"{experiment_name} both search for the hyperparameters of {cell.name} "
                            f"on {name}: leave it to one, or make another study of the other"
                        )
                    search.append(cell)
                    continue
                made = runs_for(run, seeds)
                as_it_is = _run(params, study_name, experiment, name, None, searched, **place)
                unchanged = run.parameters == as_it_is.parameters
                chosen = searched.chosen((name, method, buffer, protocol))
                chosen -= set(_variant(experiment, variant).hyperparameters)
                retuned = run.hyperparameters != as_it_is.hyperparameters
                place |= {"unchanged": unchanged, "retuned": retuned, "searched": sorted(chosen)}
                cells.append(Cell(variant=variant, runs=made, **place))
                if experiment.probes:
                    probed.update(made.values())
            if cells:
                table = Table(
                    name=f"{experiment_name}.{name}",
                    title=f"{experiment.title}: {params.benchmarks[name].title}",
                    experiment=experiment_name,
                    benchmark=name,
                    source=experiment.source or params.benchmark(name, study_name).source,
                    paper_source=experiment.source or params.benchmarks[name].source,
                    reduced=name in study.scale,
                    cells=cells,
                    variants={key: variant.title for key, variant in experiment.variants.items()},
                    baseline=experiment.baseline,
                    forgetting=params.switches(study_name)["F8"],
                )
                tables[table.name] = table
    _require_one_run(study_name, tables.values())
    runs = {i: _with_probes(params, r) if i in probed else r for i, r in runs.items()}
    return Plan(
        params=params,
        study=study_name,
        title=study.title,
        note=study.note,
        runs=runs,
        tables=tables,
        search=search,
    )


def _require_one_run(study: str, tables: Iterable[Table]) -> None:
    """Raise `UserError` where two cells of one name have different runs of a seed.

    A variant that changes nothing is the method as it is too.
    """
    made: dict[tuple[Any, ...], tuple[str, str]] = {}
    for table in tables:
        of_table = (table.benchmark, table.paper_source)
        for cell in table.cells:
            for variant in {cell.variant, None} if cell.unchanged else {cell.variant}:
                for seed, run in cell.runs.items():
                    place = (*of_table, cell.method, variant, cell.buffer, cell.protocol, seed)
                    before, other = made.setdefault(place, (table.experiment, run))
                    if other != run:
                        raise UserError(
                            f"studies.{study}.experiments: {cell.name} on {table.benchmark} is "
                            f"{other} in {before} and {run} in {table.experiment}, so that a mean "
                            "would mix them: name a variant for what differs, or make another "
                            "study of one experiment"
                        )


def _with_seed(run: Run, seed: int) -> Run:
    """The same run with a seed, which ends its identifier."""
    return run.model_copy(update={"id": f"{run.id}.s{seed}", "seed": seed})


def _with_probes(params: Params, run: Run) -> Run:
    """The same run, followed by probes, for which it needs the source's images."""
    return run.model_copy(update={"probes": True} | _source_data(params, run.source, "a probe"))


def _trial(run: Run, values: Hyperparameters, search: Search) -> Run:
    """The same run with a search's hyperparameters, which see no test image."""
    text = json.dumps(values.model_dump(), sort_keys=True)
    trial = f"trial-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    identifier = f"{run.id.removesuffix('.task-il')}.{trial}"
    changes = {"id": identifier, "hyperparameters": values, "held_out": search.held_out}
    return run.model_copy(update=changes)


def _source_data(params: Params, source: str, who: str) -> dict[str, Any]:
    """What a run that needs the source's images has to know of them."""
    data = params.sources[source].data
    if data is None:
        raise UserError(
            f"{who} needs the images of {source}, which has published weights and no data; leave "
            "it out, or give the experiment another source"
        )
    return {"source_data": data, "source_augmentation": params.datasets[data].augmentation}


def _rows(experiment: Experiment, sizes: list[int]) -> list[tuple[str, str | None, int | None]]:
    """Method, variant and buffer of each row and column of an experiment's table."""
    rows: list[tuple[str, str | None, int | None]] = []
    for method in experiment.methods:
        for variant in experiment.variants or [None]:
            changed = _variant(experiment, variant)
            if changed.methods is not None and method not in changed.methods:
                continue
            buffers: list[int | None] = [None] if changed.without_buffer else []
            buffers = [*buffers, *sizes] if METHODS[method].rehearsal else [None]
            rows += [(method, variant, buffer) for buffer in buffers]
    return rows


def _variant(experiment: Experiment, name: str | None) -> Variant:
    return Variant(title="") if name is None else experiment.variants[name]


def _run(
    params: Params,
    study: str,
    experiment: Experiment,
    benchmark_name: str,
    variant_name: str | None,
    searched: Best,
    *,
    method: str,
    buffer: int | None,
    protocol: Protocol,
) -> Run:
    """The run that one cell needs, its seed still to be set."""
    benchmark = params.benchmark(benchmark_name, study)
    source = experiment.source or benchmark.source
    variant = _variant(experiment, variant_name)
    fidelity = params.switches(study) | variant.fidelity
    hyperparameters = benchmark.hyperparameters(method, buffer, protocol, fidelity)
    best = searched.of((benchmark_name, method, buffer, protocol), hyperparameters)
    parts = [benchmark_name, method]
    if METHODS[method].rehearsal:
        parts.append(str(buffer or 0))
    if source != benchmark.source:
        parts.append(f"from-{source}")
    if variant.changes:
        parts.append(str(variant_name))
    if protocol == "task-il":  # where no earlier cell has this run: see `expand`
        parts.append(protocol)
    data = params.datasets[benchmark.data]
    source_data: dict[str, Any] = {"source_data": None, "source_augmentation": None}
    if METHODS[method].source_data:
        source_data = _source_data(params, source, method)
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
        pretrained=variant.pretrained,
        probes=False,
        **source_data,
        fidelity={switch: fidelity[switch] for switch in METHODS[method].switches},
        hyperparameters=(best or hyperparameters).changed(variant.hyperparameters),
        epochs=benchmark.epochs,
        batch_size=benchmark.batch_size,
        lr_decay=benchmark.lr_decay,
        precision=params.named_study(study).precision,
        held_out=None,
        seed=0,
    )
