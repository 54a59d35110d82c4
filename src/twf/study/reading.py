"""Reading `params.yaml`: its values become types, and a mistake is said with its key and remedy."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from twf.errors import UserError, explain, invalid_file, near_miss
from twf.study.methods import SWITCHES
from twf.study.params import Params


def load(path: Path) -> Params:
    """Read and check `params.yaml`. Each problem is a `UserError` line: key path, value, remedy."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"no {path} in {Path.cwd()}: go to the project's folder") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from None
    return check(plain_values(text, path), str(path))


def plain_values(text: str, path: Path) -> Any:
    """The values of a file in YAML 1.2, as DVC and JSON write them; no key may stand twice."""
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UserError(f"{path} is not valid YAML: {line}{error.problem}") from None
    except (YAMLError, ValueError, LookupError, AttributeError) as error:  # also of `!!int one`
        raise UserError(f"{path} is not valid YAML: {error}") from None


def check(values: Any, path: str = "params.yaml") -> Params:
    """Make `Params` of plain values, or raise a `UserError` that lists the problems."""
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        # a data set's path has the reader that it was checked against
        raise invalid_file(path, explain(error, tag=2, under="datasets")) from None
    problems = [
        f"{where}: {value!r}{near_miss(str(value), map(str, allowed))} is not one of "
        f"{', '.join(map(str, allowed))}"
        for where, value, allowed in _references(params)
        if value is not None and value not in allowed
    ]
    if missing := SWITCHES.keys() - params.fidelity.keys():
        problems.append(f"fidelity: say 'paper' or 'published' for {', '.join(sorted(missing))}")
    for name in params.studies.keys() & {"data", "checkpoints"}:
        problems.append(f"studies.{name}: another name, as plans/{name}/ is taken")
    if problems:
        raise invalid_file(path, problems)
    return params


def _references(params: Params) -> Iterator[tuple[str, Any, Collection[Any]]]:
    """Where a name or number stands, itself if it is given, and what it must be among."""
    yield "study", params.study, params.studies
    for name, source in params.sources.items():
        yield f"sources.{name}.data", source.data, params.datasets
    for name, benchmark in params.benchmarks.items():
        where = f"benchmarks.{name}"
        yield f"{where}.data", benchmark.data, params.datasets
        yield f"{where}.source", benchmark.source, params.sources
        if dataset := params.datasets.get(benchmark.data):
            divisors = [n for n in range(2, dataset.classes + 1) if dataset.classes % n == 0]
            yield f"{where}.tasks, of {dataset.classes} classes", benchmark.tasks, divisors
        for method, settings in benchmark.methods:
            for i, override in enumerate(settings.overrides if settings else []):
                key = f"{where}.methods.{method}.overrides.{i}.buffer"
                yield key, override.buffer, benchmark.buffers
    for study_name, study in params.studies.items():
        for name, scale in study.scale.items():
            where = f"studies.{study_name}.scale"
            yield where, name, params.benchmarks
            yield f"{where}.{name}.source", scale.source, params.sources
        for name, experiment in study.experiments.items():
            where = f"studies.{study_name}.experiments.{name}"
            yield f"{where}.source", experiment.source, params.sources
            for benchmark_name in experiment.benchmarks:
                yield f"{where}.benchmarks", benchmark_name, params.benchmarks
            for variant_name, variant in experiment.variants.items():
                for method in variant.methods or []:
                    yield f"{where}.variants.{variant_name}.methods", method, experiment.methods
