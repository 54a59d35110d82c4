"""Errors and warnings for the user. `UserError` is one that the user can mend."""

import functools
import sys
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


class UserError(Exception):
    """A mistake or a missing input that the user can mend.

    Its message names the file, key or run, and the remedy. The command line prints it without a
    stack trace and exits with status 2; the Snakefile turns it into a `WorkflowError`. It may quote
    names from files, so characters that would steer a terminal or turn text round are escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(map(_printable, message)))


class GpuError(UserError):
    """What a GPU refused, or that none is left: a further attempt may find one, or more room."""


def lookup(kind: str, names: Mapping[str, T], name: str, where: str, remedy: str = "") -> T:
    """`names[name]`, or a `UserError` that says which names there are, or the remedy."""
    if name not in names:
        said = remedy or f"there is {', '.join(names)}"
        raise UserError(f"no {kind} {name!r} in {where}; {said}")
    return names[name]


@functools.cache
def warn(text: str) -> None:
    """Say what may be wrong, once in a process."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def _printable(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    return character.encode("unicode_escape").decode()
