"""How numbers and titles become text."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from twf.study.params import Protocol

TextRow = dict[str, str]  # a row as text, by the heading of each column

PROTOCOL_TITLES: dict[Protocol, str] = {"class-il": "Class-IL", "task-il": "Task-IL"}


class Section(NamedTuple):
    """A table of a page: it is left out where it has no rows."""

    title: str
    rows: Sequence[TextRow]
    note: str = ""


def place(protocol: Protocol, buffer: Any) -> str:
    """A protocol and a buffer, if there is one, as a heading."""
    return PROTOCOL_TITLES[protocol] + (f", buffer {buffer}" if buffer else "")


def number(value: float | None, sign: str = "") -> str:
    """A number as text, to two decimals, 0 never negative; a dash where there is none."""
    return "—" if pd.isna(value) else f"{value:{sign}z.2f}"


def interval(low: float | None, high: float | None, sign: str = "") -> str:
    """An interval as text; a dash where there is none.

    An end that is rounded to 0 keeps its sign, as a verdict may depend on it.
    """
    return "—" if pd.isna(low) else f"{low or 0.0:{sign}.2f} to {high or 0.0:{sign}.2f}"


def estimate(value: float | None, low: float | None, high: float | None) -> str:
    """A difference as text, and its interval: `+1.30 (-0.50 to +3.10)`; a dash for none."""
    return number(value, "+") + ("" if pd.isna(low) else f" ({interval(low, high, '+')})")


def in_parentheses(value: float | None) -> str:
    """Forgetting as it stands behind an accuracy; nothing where there is none."""
    return "" if pd.isna(value) else f"({value:.2f})"


def null_buffer(frame: pd.DataFrame) -> "pd.Series[Any]":
    """The column `buffer`, null where it is 0."""
    buffer = frame["buffer"].astype("Int64")
    return buffer.mask(buffer == 0)


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame, by column."""
    return frame.to_dict("records")  # type: ignore[return-value]


def escape_markdown(text: str) -> str:
    """Plain text as Markdown source on one line, fit for a cell of a table too."""
    return re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", " ".join(text.split()))


def markdown(rows: Sequence[TextRow]) -> str:
    """Rows of Markdown as a table, the first column to the left."""
    head, rule = list(rows[0]), [":---", *["---:"] * (len(rows[0]) - 1)]
    lines = [head, rule, *(row.values() for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
