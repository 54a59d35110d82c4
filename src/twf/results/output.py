"""How tables become files: rows by column to Parquet, CSV, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, StrictUndefined

from twf.files import atomic
from twf.study.params import Protocol

Row = dict[str, Any]  # a row of a module's SCHEMA; what has no value is None, or left out
Texts = dict[str, str]  # a row as text, by the heading of each column

PROTOCOL_TITLES: dict[Protocol, str] = {"class-il": "Class-IL", "task-il": "Task-IL"}


def place(protocol: Protocol, buffer: int | None) -> str:
    """A protocol and a buffer as a heading."""
    return f"{PROTOCOL_TITLES[protocol]}{buffer_words(buffer)}"


def buffer_words(buffer: Any) -> str:
    """What follows a title that has a buffer."""
    return "" if pd.isna(buffer) else f", buffer {buffer}"


class Markdown(str):
    """Text that is Markdown already: it is not escaped in a table."""


_TEX = {character: f"\\{character}" for character in "&%$#_{}"}
_TEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_TEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
_TEX |= {"±": r"$\pm$", "—": "---"}

# What a spreadsheet takes for a formula's start; the wide forms of East Asian text too.
_FORMULA = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

# What is shown as a number: 3; -0.5; 70.00 (1.20); 1.00 to 2.00; 2/3, 1 diverged
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(/\d+)?( [(\[].*| to .*|, \d+ diverged)?")


def escape_tex(text: str) -> str:
    """Plain text as LaTeX source on one line: an empty one would end a caption's argument."""
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    """Plain text as Markdown source on one line, fit for a cell of a table too."""
    return re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", " ".join(text.split()))


def markdown_block(text: str, language: str) -> str:
    """Text as a block of code in Markdown, whose fence no part of it can close."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def markdown_table(rows: Sequence[Texts]) -> str:
    """Rows as a table in Markdown, numbers to the right; nothing where there are none."""
    if not rows:
        return ""
    right = numeric(rows)
    lines = [list(rows[0]), ["---:" if name in right else ":---" for name in rows[0]]]
    lines += [[_markdown_text(text) for text in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|") if isinstance(text, Markdown) else escape_markdown(text)


def numeric(rows: Sequence[Texts]) -> set[str]:
    """The headings of the columns that hold nothing but numbers, or dashes where there is none."""
    texts = {name: {row[name] for row in rows} - {"—"} for name in rows[0]}
    return {name for name, found in texts.items() if all(map(_NUMBER.fullmatch, found))}


def number(value: float | None, sign: str = "") -> str:
    """A number as text, to two decimals, 0 never negative; a dash where there is none."""
    return "—" if value is None else f"{value:{sign}z.2f}"


def interval(low: float | None, high: float | None, sign: str = "") -> str:
    """An interval as text; a dash where there is none."""
    return "—" if low is None else f"{number(low, sign)} to {number(high, sign)}"


def csv(frame: pd.DataFrame) -> str:
    """A frame as CSV in which no text is a formula: a spreadsheet would compute what starts so.

    Such a text gets an apostrophe before it (CWE-1236). Numbers are as they are.
    """
    texts = {
        name: column.map(_no_formula)
        for name, column in frame.items()
        if pd.api.types.is_object_dtype(column) or isinstance(column.dtype, pd.StringDtype)
    }
    return frame.assign(**texts).to_csv(index=False)  # type: ignore[arg-type]


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # pandas does not quote a bare return, so what follows would be a row of its own
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(_FORMULA) else text


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
_markdown.filters |= {
    "md": escape_markdown,
    "tex": escape_tex,
    "block": markdown_block,
    "table": markdown_table,
}
_tex = _markdown.overlay(  # braces and per cent signs mean something else in LaTeX
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    comment_start_string="<#",
    comment_end_string="#>",
)


def complete(row: Row, schema: pa.Schema) -> Row:
    """A row with all columns of a schema and no other, None where it has no value."""
    return {name: row.get(name) for name in schema.names}


def to_frame(rows: Sequence[Row], schema: pa.Schema) -> pd.DataFrame:
    """Rows as a frame with the columns of a schema; integers are Int64, lists are kept."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def flat_csv(rows: Sequence[Row], schema: pa.Schema) -> str:
    """Rows as CSV, where lists are words."""
    frame = to_frame(rows, schema)
    lists = [field.name for field in schema if pa.types.is_list(field.type)]
    return csv(frame.assign(**{name: frame[name].map(" ".join) for name in lists}))


def write_long(rows: Sequence[Row], schema: pa.Schema, file: Callable[[str], Path]) -> None:
    """Write rows as Parquet and as CSV; `file` names them by ending."""
    frame = to_frame(rows, schema)
    with atomic(file("parquet")) as partial:
        pq.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False), partial)
    with atomic(file("csv")) as partial:
        partial.write_text(flat_csv(rows, schema), encoding="utf-8")


def write_text(template: str, values: dict[str, Any], path: Path) -> None:
    """Fill a template of this package, in Markdown or, by its name, in LaTeX."""
    environment = _tex if template.endswith(".tex.j2") else _markdown
    with atomic(path) as partial:
        partial.write_text(environment.get_template(template).render(values), encoding="utf-8")
