"""The methods, one file each, with the same hooks: see `twf.learning.methods.base`."""

from importlib import import_module
from typing import Any

from twf.learning.learner import Learner
from twf.learning.methods.base import Method
from twf.study.types import Hyperparameters


def load(name: str) -> type[Method[Any]]:
    """The class of the method called `name`.

    Only its own module is imported, so that a record's hash of the code in use covers no other.
    """
    found: type[Method[Any]] = import_module(
        f"twf.learning.methods.{name.replace('-', '_')}"
    ).METHOD
    return found


def make(name: str, learner: Learner, hyperparameters: Hyperparameters) -> Method[Any]:
    """The method called `name`, ready to train `learner`."""
    return load(name)(learner, hyperparameters)
