"""The code that a number depends on, as one hash: for plans, records and saved states."""

import ast
import hashlib
import json
from functools import cache
from pathlib import Path

import twf
from twf.errors import UserError

PACKAGE = "twf.learning"  # all that decides a number
LOOP = f"{PACKAGE}.loop"
PRETRAINING = f"{PACKAGE}.pretraining"

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef


def method_module(method: str) -> str:
    """The module of a method's loss. Raises `UserError` where the method has none."""
    module = f"{PACKAGE}.methods.{method.replace('-', '_')}"
    if not _file(module).exists():
        raise UserError(f"method {method!r} has no loss: write {_file(module)}")
    return module


def code_hash(*roots: str) -> str:
    """SHA-256, in hex, over `roots` and the modules of `learning/` that they import, and so on.

    Comments, docstrings and layout do not count.
    """
    used, waiting = dict[str, str](), [*roots]
    while waiting:
        if (name := waiting.pop()) not in used:
            used[name], imported = parsed(name)
            waiting += imported
    return hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()


@cache
def parsed(module: str) -> tuple[str, list[str]]:
    """A module without comments and docstrings, and the modules of `learning/` that it imports."""
    tree = ast.parse(_file(module).read_bytes())
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            del node.body[0]
    imported = [name for name in names if name.startswith(PACKAGE) and _file(name).exists()]
    return ast.unparse(tree), imported


def _file(module: str) -> Path:
    path = Path(twf.__file__).parent.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
