"""Errors and warnings for the user. `UserError` is one that the user can mend."""

import contextlib
import sys
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from pydantic import ValidationError

T = TypeVar("T")


class UserError(Exception):
    """A mistake or a missing input that the user can mend.

    Its message names the file, key or run, and the remedy; commands print it and exit with status
    2. It may quote names from files, so characters that would steer a terminal are escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_printable(message))


def lookup(kind: str, names: Mapping[str, T], name: str, where: str, remedy: str = "") -> T:
    """`names[name]`, or a `UserError` with the name most like it, and all names or the remedy."""
    if name not in names:
        remedy = remedy or f"there is {', '.join(names) or 'none'}"
        raise UserError(f"no {kind} {name!r} in {where}{near_miss(name, names)}; {remedy}")
    return names[name]


def near_miss(name: str, names: Iterable[str]) -> str:
    """A question whether the most similar of some names was meant; empty if none is similar."""
    near = get_close_matches(name, names, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def invalid_file(path: object, problems: list[str]) -> UserError:
    """The error of an invalid file, with a line for each problem."""
    return UserError(f"{path} is invalid:\n  " + "\n  ".join(dict.fromkeys(problems)))


def explain(error: ValidationError, tag: int = -1, under: str | None = None) -> list[str]:
    """The mistakes that pydantic lists, each as `key.path: what is wrong (is: value)`.

    `tag` is the position in paths `under` a key of what is no key, but a kind that was checked.
    """
    problems = []
    for mistake in error.errors(include_url=False):
        # pydantic puts [key] behind a key that is wrong itself
        parts = [str(part) for part in mistake["loc"] if part != "[key]"]
        if 0 <= tag < len(parts) and under in (None, parts[0]):
            del parts[tag]
        where = ".".join(parts) + ": " if parts else ""
        value = mistake["input"]
        shown = "" if isinstance(value, dict) else f" (is: {value!r})"
        problems.append(f"{where}{mistake['msg'].removeprefix('Value error, ')}{shown}")
    return problems


def note(text: str) -> None:
    """Print a notice to stderr; a full disk costs the log this line, not the work."""
    with contextlib.suppress(OSError):
        print(_printable(text), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Print a job's last line; a full disk costs the log this line, not what was made."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def few(names: Collection[str]) -> str:
    """The first of some names, and how many more there are."""
    return ", ".join(list(names)[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _printable(text: str) -> str:
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )
