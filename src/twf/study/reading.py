"""Reading `params.yaml`: its values become types, and a mistake is said with its key and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from twf.errors import UserError, explain, invalid_file
from twf.study.params import Params


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
    if problems := params.problems():
        raise invalid_file(path, problems)
    return params
