"""What one check of a set-up found."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warning", "wrong"]


class Check(NamedTuple):
    """What was found of one thing, and the remedy where it is not well."""

    name: str
    state: State
    said: str
    remedy: str = ""
