"""Reading `params.yaml`: its values become types, and a mistake is said with its key and remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from twf.errors import UserError, explain, invalid_file, near_miss
from twf.study.params import Params
from twf.study.switches import SWITCHES


def load(path: Path) -> Params:
    """Read and check `params.yaml`. Each problem is a `UserError` line: key path, value, remedy."""
    return parse(text_of(path), path)


def text_of(path: Path) -> str:
    """What `params.yaml` says, or a `UserError` that names where it was looked for."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        where = f"file {path}" if path.is_absolute() else f"{path} in {Path.cwd()}"
        raise UserError(
            f"no {where}: go to the project's folder, or name it with --params"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from None


def parse(text: str, path: Path) -> Params:
    """The parameters that a file's text stands for."""
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
    if problems := _problems(params):
        raise invalid_file(path, problems)
    return params


def _problems(params: Params) -> list[str]:
    """A line for each name that does not exist, and for classes that do not divide."""
    problems = []
    for where, name, names in _references(params):
        if name not in names:
            near = f"{name!r}{near_miss(name, names)}"
            problems.append(f"{where}: {near} does not exist; allowed: {', '.join(names)}")
    problems += [
        f"fidelity: say 'paper' or 'published' for {switch}"
        for switch in SWITCHES
        if switch not in params.fidelity
    ]
    for name, benchmark in params.benchmarks.items():
        dataset = params.datasets.get(benchmark.data)
        if dataset and dataset.classes % benchmark.tasks:
            allowed = [n for n in range(2, dataset.classes + 1) if dataset.classes % n == 0]
            problems.append(
                f"benchmarks.{name}.tasks: {benchmark.tasks} does not divide the "
                f"{dataset.classes} classes of {benchmark.data}; allowed: "
                f"{', '.join(map(str, allowed))}"
            )
    for name in params.studies.keys() & {"data", "checkpoints"}:
        problems.append(f"studies.{name}: another name, as plans/{name}/ is taken")
    return problems


def _references(params: Params) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Where a name stands, the name, and what it must be among."""
    yield "study", params.study, params.studies
    for name, source in params.sources.items():
        if source.data is not None:
            yield f"sources.{name}.data", source.data, params.datasets
    for name, benchmark in params.benchmarks.items():
        yield f"benchmarks.{name}.data", benchmark.data, params.datasets
        yield f"benchmarks.{name}.source", benchmark.source, params.sources
    for study_name, study in params.studies.items():
        for name, scale in study.scale.items():
            where = f"studies.{study_name}.scale"
            yield where, name, params.benchmarks
            yield f"{where}.{name}.source", scale.source, params.sources
        for name, experiment in study.experiments.items():
            where = f"studies.{study_name}.experiments.{name}"
            for benchmark_name in experiment.benchmarks:
                yield f"{where}.benchmarks", benchmark_name, params.benchmarks
            if experiment.source is not None:
                yield f"{where}.source", experiment.source, params.sources
