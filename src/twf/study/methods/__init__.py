"""The methods, a file each: title, place in tables, hyperparameters and switches. No torch here.

The loss of a method is in the file of the same name in `twf.learning.methods`. A file that is put
into this folder is a method.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from twf.study.types import MethodInfo


def _all() -> dict[str, MethodInfo]:
    """By name, in the order of the paper's tables."""
    found: dict[str, MethodInfo] = {
        module.name.replace("_", "-"): import_module(f"{__name__}.{module.name}").METHOD
        for module in iter_modules(__path__)
    }
    return dict(sorted(found.items(), key=lambda item: item[1].order))


METHODS = _all()
