"""What no single key of `params.yaml` can tell: names that must exist, classes that must divide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import TypeAdapter, ValidationError

from twf.errors import explain
from twf.study.methods import METHODS
from twf.study.switches import SWITCHES

if TYPE_CHECKING:
    from twf.study.params import Experiment, Params
    from twf.study.types import Hyperparameters


def problems(params: Params) -> list[str]:
    """A line for each: names that must exist, classes that must divide. None where all is well."""
    found: list[str] = []

    def known(where: str, name: str | None, names: Any) -> bool:
        if name is not None and name not in names:
            found.append(f"{where}: {name!r} does not exist; allowed: {', '.join(names)}")
            return False
        return name is not None

    known("study", params.study, params.studies)
    missing = [switch for switch in SWITCHES if switch not in params.fidelity]
    if missing:
        found.append(f"fidelity: say 'paper' or 'published' for {', '.join(missing)}")
    for name, source in params.sources.items():
        known(f"sources.{name}.data", source.data, params.datasets)
    for name, benchmark in params.benchmarks.items():
        where = f"benchmarks.{name}"
        known(f"{where}.source", benchmark.source, params.sources)
        if known(f"{where}.data", benchmark.data, params.datasets):
            classes = params.datasets[benchmark.data].classes
            if classes % benchmark.tasks:
                allowed = [n for n in range(2, classes + 1) if classes % n == 0]
                found.append(
                    f"{where}.tasks: {benchmark.tasks} does not divide the {classes} classes of "
                    f"{benchmark.data}; allowed: {', '.join(map(str, allowed))}"
                )
        for method in METHODS:
            settings = getattr(benchmark.methods, method)
            for i, override in enumerate(settings.overrides if settings else []):
                if override.buffer is not None and override.buffer not in benchmark.buffers:
                    found.append(
                        f"{where}.methods.{method}.overrides.{i}.buffer: {override.buffer} is not "
                        f"among {where}.buffers; allowed: {', '.join(map(str, benchmark.buffers))}"
                    )
    for study_name, study in params.studies.items():
        if study_name in ("data", "checkpoints"):  # whose plans lie beside those of studies
            found.append(f"studies.{study_name}: another name, as plans/{study_name}/ is taken")
        for name, scale in study.scale.items():
            known(f"studies.{study_name}.scale", name, params.benchmarks)
            known(f"studies.{study_name}.scale.{name}.source", scale.source, params.sources)
        for experiment_name, experiment in study.experiments.items():
            where = f"studies.{study_name}.experiments.{experiment_name}"
            known(f"{where}.source", experiment.source, params.sources)
            found += _check_variants(where, experiment)
            found += _check_baseline(f"{where}.baseline", experiment)
            for name in experiment.benchmarks:
                if known(f"{where}.benchmarks", name, params.benchmarks):
                    found += [
                        f"{where}.methods: {method!r} has no hyperparameters; add "
                        f"benchmarks.{name}.methods.{method}"
                        for method in experiment.methods
                        if getattr(params.benchmarks[name].methods, method) is None
                    ]
            found += _check_search(f"{where}.search", experiment)
    return found


def _check_baseline(where: str, experiment: Experiment) -> list[str]:
    """Others are compared with a method that is there too; variants with their own method."""
    if experiment.baseline is None:
        return []
    if experiment.variants:
        return [f"{where}: variants are compared with their own method; leave it out"]
    if experiment.baseline not in experiment.methods:
        allowed = ", ".join(experiment.methods)
        return [f"{where}: {experiment.baseline!r} is not among methods; allowed: {allowed}"]
    return []


def _check_variants(where: str, experiment: Experiment) -> list[str]:
    """A variant may only change what the methods that it is about have."""
    problems = []
    for name, variant in experiment.variants.items():
        for method in variant.methods or experiment.methods:
            at, info = f"{where}.variants.{name}", METHODS[method]
            if method not in experiment.methods:
                allowed = ", ".join(experiment.methods)
                problems.append(
                    f"{at}.methods: {method!r} is not among methods; allowed: {allowed}"
                )
            if variant.without_buffer and info.rehearsal and not info.without_buffer:
                able = ", ".join(name for name, other in METHODS.items() if other.without_buffer)
                problems.append(
                    f"{at}.without_buffer: {method!r} needs its buffer; allowed: {able}"
                )
            values = {key: [value] for key, value in variant.hyperparameters.items()}
            problems += _wrong_values(f"{at}.hyperparameters", method, values)
    return problems


def _unknown_keys(where: str, method: str, keys: Iterable[str]) -> list[str]:
    fields = METHODS[method].hyperparameters.model_fields
    return [
        f"{where}: {method} has no {key!r}; allowed: {', '.join(fields)}"
        for key in keys
        if key not in fields
    ]


def _wrong_values(where: str, method: str, values: Mapping[str, Sequence[float]]) -> list[str]:
    """Hyperparameters that a method does not have, and values that they may not have."""
    problems = _unknown_keys(where, method, values)
    fields = METHODS[method].hyperparameters.model_fields
    for key in [key for key in values if key in fields]:
        allowed = _allowed(METHODS[method].hyperparameters, key)
        for value in values[key]:
            try:
                allowed.validate_python(value, strict=True)
            except ValidationError as error:
                problems += [f"{where}.{key}: {problem}" for problem in explain(error)]
    return problems


@cache
def _allowed(hyperparameters: type[Hyperparameters], key: str) -> TypeAdapter[Any]:
    """What checks one hyperparameter alone: half the time of a check, where each makes its own."""
    field = hyperparameters.model_fields[key]
    return TypeAdapter(Annotated[(field.annotation, *field.metadata)])  # type: ignore[arg-type]


def _check_search(where: str, experiment: Experiment) -> list[str]:
    """A search varies what its methods have, by values they may have, and nothing else."""
    if experiment.search is None:
        return []
    problems = []
    if experiment.variants or experiment.probes:
        problems.append(f"{where}: an experiment that searches has no variants and no probes")
    grids, factors = experiment.search.grids, experiment.search.factors
    if factors and not len(experiment.protocols) == len(experiment.buffers or []) == 1:
        problems.append(f"{where}.factors: name the one buffer and the one protocol that decide")
    for method in experiment.methods:
        if method not in grids and not factors:
            problems.append(f"{where}.grids: say which values of {method} to try")
        problems += _unknown_keys(f"{where}.factors", method, factors)
    for method, grid in grids.items():
        if method not in experiment.methods:
            allowed = ", ".join(experiment.methods)
            problems.append(f"{where}.grids: {method!r} is not among methods; allowed: {allowed}")
        problems += _wrong_values(f"{where}.grids.{method}", method, grid)
    return problems
