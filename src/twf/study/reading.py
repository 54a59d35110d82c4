"""Reading `params.yaml`: its values become types, and a mistake is said with its key and remedy."""

from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from twf.errors import UserError, explain, wrong
from twf.study import consistency
from twf.study.params import Params


class UniqueKeyLoader(yaml.CSafeLoader):
    """Refuses a key that stands twice: plain YAML would let the second replace the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # `<<: *anchor` is no key
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # an error, which the loader below words
            if key in seen:
                raise UserError(f"line {key_node.start_mark.line + 1}: key {key!r} twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


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
    try:
        values = yaml.load(text, Loader=UniqueKeyLoader)  # noqa: S506
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        where = str(error).replace('in "<unicode string>"', f"in {path}")
        raise UserError(f"{path} is not valid YAML: {where}") from None
    return check(values, str(path))


def check(values: Any, path: str = "params.yaml") -> Params:
    """Make `Params` of plain values, or raise a `UserError` that lists the problems.

    Names that must exist are looked at once every value is of its kind.
    """
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        # a data set's path has the reader that it was checked against
        raise wrong(path, explain(error, tag=2, under="datasets")) from None
    problems = consistency.problems(params)
    if problems:
        raise wrong(path, problems)
    return params


def schema() -> str:
    """The JSON schema of `params.yaml`, for editors."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(dialect | Params.model_json_schema(), indent=2) + "\n"
