"""Reading `params.yaml`: its values become types, and a mistake is said with its key and remedy."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from twf.errors import UserError, explain, invalid_file
from twf.study.params import Params


def load(path: Path) -> Params:
    """Read and check `params.yaml`. Each problem is a `UserError` line: key path, value, remedy."""
    try:
        content = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"no {path} in {Path.cwd()}: go to the project's folder") from None
    return check(plain_values(content, path), str(path))


def plain_values(content: str | bytes, path: Path) -> Any:
    """The values of a file in YAML 1.2, as DVC and JSON write them; no key may stand twice."""
    try:
        return YAML(typ="safe", pure=True).load(content)
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UserError(f"{path} is not valid YAML: {line}{error.problem}") from None
    except (YAMLError, ValueError, LookupError, AttributeError) as error:  # also of `!!int one`
        raise UserError(f"{path} is not valid YAML: {error}") from None


def check(values: Any, path: str = "params.yaml") -> Params:
    """Make `Params` of plain values, or raise a `UserError` that lists the problems."""
    try:
        return Params.model_validate(values, context=values)
    except ValidationError as error:
        # a data set's path has the reader that it was checked against
        raise invalid_file(path, explain(error, tag=2, under="datasets")) from None
