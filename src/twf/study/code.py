"""The code that a number depends on, as one hash: for plans, records and saved states."""

import ast
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

import twf
from twf.errors import UserError

PACKAGE = "twf.learning"  # all that decides a number
LOOP = f"{PACKAGE}.loop"
PRETRAINING = f"{PACKAGE}.pretraining"

_SILENT = ("ctx", "kind", "type_comment")  # fields of a syntax tree that change no behaviour
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def method_module(method: str) -> str:
    """The module of a method's loss. Raises `UserError` where the method has none."""
    module = f"{PACKAGE}.methods.{method.replace('-', '_')}"
    if not _file(module).exists():
        raise UserError(f"method {method!r} has no loss: write {_file(module)}")
    return module


def code_hash(*roots: str) -> str:
    """SHA-256, in hex, over the modules of `learning/` that `roots` use, themselves among them.

    Imports are followed, those of types too. Comments, docstrings and layout do not count, and the
    hash is the same on every version of Python that can run the code.
    """
    used: dict[str, str] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name], imported = parsed(name)
            waiting += imported
    parts = (f"{json.dumps(name)}: {used[name]}" for name in sorted(used))
    return hashlib.sha256(f"{{{', '.join(parts)}}}".encode()).hexdigest()


@cache
def parsed(module: str) -> tuple[str, tuple[str, ...]]:
    """A module's canonical syntax tree, as JSON, and the modules of `learning/` that it imports.

    Raises `UserError` where it is no Python.
    """
    try:
        tree = ast.parse(_file(module).read_bytes())
    except SyntaxError as error:
        raise UserError(f"{_file(module)}, line {error.lineno}: {error.msg}") from None
    package = module if _file(module).name == "__init__.py" else module.rpartition(".")[0]
    imported = tuple(name for name in _imported(tree, package) if name.startswith(PACKAGE))
    return json.dumps(_canonical(tree), sort_keys=True), imported


def _file(module: str) -> Path:
    path = Path(twf.__file__).parent.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """The modules that one of a package imports; not what else it imports from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (source := resolve_name("." * node.level + (node.module or ""), package))
            names = (f"{source}.{alias.name}" for alias in node.names)
            yield from (name for name in names if _file(name).exists())


def _canonical(node: Any) -> Any:
    """A syntax tree as plain values; what is absent is left out, as its fields grow in number."""
    if isinstance(node, list):
        return [_canonical(part) for part in node]
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if not isinstance(node, ast.AST):
        return node
    fields = {
        name: value
        for name, value in ast.iter_fields(node)
        if name not in _SILENT and value is not None and value != []
    }
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    if isinstance(node, ast.JoinedStr):  # Python 3.12 ends some with an empty part
        fields["values"] = [v for v in node.values if getattr(v, "value", None) != ""]
    return [type(node).__name__, {name: _canonical(value) for name, value in fields.items()}]
