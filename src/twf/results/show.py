"""How frames become files and text: Parquet and CSV; Markdown, LaTeX and HTML by templates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from twf.files import atomic
from twf.study.params import Protocol

TextRow = dict[str, str]  # a row as text, by the heading of each column

PROTOCOL_TITLES: dict[Protocol, str] = {"class-il": "Class-IL", "task-il": "Task-IL"}


def place(protocol: Protocol, buffer: Any) -> str:
    """A protocol and a buffer, if there is one, as a heading."""
    return PROTOCOL_TITLES[protocol] + buffer_words(buffer)


def buffer_words(buffer: Any) -> str:
    """What follows a title that has a buffer."""
    return f", buffer {buffer}" if buffer else ""


def number(value: float | None, sign: str = "") -> str:
    """A number as text, to two decimals, 0 never negative; a dash where there is none."""
    return "—" if pd.isna(value) else f"{value:{sign}z.2f}"


def interval(low: float | None, high: float | None, sign: str = "") -> str:
    """An interval as text; a dash where there is none.

    An end that is rounded to 0 keeps its sign, as a verdict may depend on it.
    """
    ends = (low, high)
    return "—" if pd.isna(low) else " to ".join(f"{end or 0.0:{sign}.2f}" for end in ends)


def estimate(value: float | None, low: float | None, high: float | None) -> str:
    """A difference as text, and its interval: `+1.30 (-0.50 to +3.10)`; a dash for none."""
    ends = "" if pd.isna(low) else f" ({interval(low, high, '+')})"
    return number(value, "+") + ends


def in_parentheses(value: float | None) -> str:
    """Forgetting as it stands behind an accuracy; nothing where there is none."""
    return "" if pd.isna(value) else f"({value:.2f})"


def null_buffer(frame: pd.DataFrame) -> pd.Series[Any]:
    """The column `buffer`, null where it is 0."""
    buffer = frame["buffer"].astype("Int64")
    return buffer.mask(buffer == 0)


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame, by column."""
    return frame.to_dict("records")  # type: ignore[return-value]


class Section(NamedTuple):
    """A table of a page: it is left out where it has no rows."""

    title: str
    rows: Sequence[TextRow]
    note: str = ""


# Text


_TEX = {character: f"\\{character}" for character in "&%$#_{}"}
_TEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_TEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
_TEX |= {"±": r"$\pm$", "—": "---"}

# What is shown as a number: 3; -0.5; 70.00 (1.20); 1.00 to 2.00; 2/3, 1 diverged; 1.00 †
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(/\d+)?( [(\[].*| to .*|, \d+ diverged| †)?")


def escape_tex(text: str) -> str:
    """Plain text as LaTeX source on one line: an empty one would end a caption's argument."""
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    """Plain text as Markdown source on one line, fit for a cell of a table too."""
    return re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", " ".join(text.split()))


def numeric(rows: Sequence[Mapping[str, str]]) -> set[str]:
    """The headings of the columns that hold nothing but numbers, or dashes where there is none."""
    texts = {name: {row[name] for row in rows} - {"—"} for name in rows[0]}
    return {name for name, column in texts.items() if all(map(_NUMBER.fullmatch, column))}


def environment(html: bool = False) -> Environment:
    """What fills the templates of this package."""
    return Environment(
        loader=PackageLoader("twf.results"),
        autoescape=html,  # noqa: S701 - in Markdown and LaTeX, filters escape
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


_markdown = environment()
_markdown.filters |= {"md": escape_markdown, "tex": escape_tex}
_tex = _markdown.overlay(  # braces and per cent signs mean something else in LaTeX
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    comment_start_string="<#",
    comment_end_string="#>",
)


def fill(template: str, values: dict[str, Any], path: Path) -> None:
    """Fill a template of this package, in Markdown or, by its name, in LaTeX."""
    environment = _tex if template.endswith(".tex.j2") else _markdown
    with atomic(path) as partial:
        partial.write_text(environment.get_template(template).render(values), encoding="utf-8")
