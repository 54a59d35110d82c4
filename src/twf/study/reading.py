"""Reading `params.yaml`: its values become types, and a mistake is said with its key and remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from twf.errors import UserError, explain, invalid_file
from twf.study import consistency
from twf.study.params import Params

# YAML 1.2's core schema, as DVC and JSON write values: `1e-05` is a number, `off` a word.
PLAIN = {
    "null": ("~nN", "~|null|Null|NULL|"),
    "bool": ("tTfF", "true|True|TRUE|false|False|FALSE"),
    "int": ("-+0123456789", "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": (
        "-+.0123456789",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    ),
    "merge": ("<", "<<"),
}


class UniqueKeyLoader(yaml.CSafeLoader):
    """YAML 1.2, where PyYAML alone reads 1.1; and it refuses a key that stands twice.

    Plain YAML would let the second replace the first.
    """

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


UniqueKeyLoader.yaml_implicit_resolvers = {}  # in place of those of YAML 1.1
for _tag, (_starts, _pattern) in PLAIN.items():
    _whole = re.compile(f"(?:{_pattern})$")
    _first = [*_starts, *([""] if _tag == "null" else [])]  # nothing at all is null
    UniqueKeyLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, _first)


def _whole_number(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> int:
    """`010` is ten, as in JSON; `0o10` is eight."""
    base = {"0o": 8, "0x": 16}.get(node.value[:2], 10)
    return int(node.value, base)


UniqueKeyLoader.add_constructor("tag:yaml.org,2002:int", _whole_number)


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
    except (ValueError, LookupError, AttributeError) as error:  # PyYAML's, of `!!int one`
        raise UserError(f"{path} has a tag that its value is not of: {error}") from None
    return check(values, str(path))


def check(values: Any, path: str = "params.yaml") -> Params:
    """Make `Params` of plain values, or raise a `UserError` that lists the problems.

    Names that must exist are looked at once every value is of its kind.
    """
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        # a data set's path has the reader that it was checked against
        raise invalid_file(path, explain(error, tag=2, under="datasets")) from None
    problems = consistency.problems(params)
    if problems:
        raise invalid_file(path, problems)
    return params


def schema() -> str:
    """The JSON schema of `params.yaml`, for editors."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(dialect | Params.model_json_schema(), indent=2) + "\n"
