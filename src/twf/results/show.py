"""How frames become files and text: Parquet and CSV; Markdown, LaTeX and HTML by templates."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, StrictUndefined

from twf.errors import UserError
from twf.files import atomic, runs_file, sha256
from twf.study import Plan
from twf.study.params import Protocol

TextRow = dict[str, str]  # a row as text, by the heading of each column

MIXED = "†"  # beside a mean of runs that differ in precision
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


def freedom(value: float) -> str:
    """Degrees of freedom as text."""
    return f"{value:.1f}".removesuffix(".0") + " df"


def estimate(value: float | None, low: float | None, high: float | None, remark: str = "") -> str:
    """A difference as text, a dash where there is none, and its interval: `+1.30 (-0.50 to +3.10)`.

    The remark stands behind the interval.
    """
    ends = "" if pd.isna(low) else f" ({interval(low, high, '+')}{remark})"
    return number(value, "+") + ends


def mixed(precisions: Sequence[str]) -> str:
    """What follows a number of runs that differ in precision; nothing where they do not."""
    return f" {MIXED}" if len(precisions) > 1 else ""


def diverged(runs: int) -> str:
    """What follows a number of seeds where some runs diverged."""
    return f", {runs} diverged" if runs else ""


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


# Files


def write(
    frame: pd.DataFrame, schema: pa.Schema, file: Callable[[str], Path], records: str
) -> None:
    """Write a frame as Parquet and as CSV, where lists are words; `file` names them by ending.

    The columns are those of the schema, all null where the frame has none of this name. A buffer of
    0 and empty text are null. `records` says of which records it is.
    """
    columns = {}
    for field in schema:
        column = frame.get(field.name, pd.Series(None, index=frame.index, dtype=object))
        if field.name == "buffer":
            column = null_buffer(frame)
        elif pa.types.is_list(field.type):
            column = column.astype(object)
        elif pa.types.is_string(field.type):
            column = column.astype(object).where(column.notna() & (column != ""), None)
        columns[field.name] = column
    whole = pd.DataFrame(columns)
    table = pa.Table.from_pandas(whole, schema=schema, preserve_index=False)
    table = table.replace_schema_metadata({**table.schema.metadata, "twf_records": records})
    with atomic(file("parquet")) as partial:
        pq.write_table(table, partial)
    lists = [field.name for field in schema if pa.types.is_list(field.type)]
    with atomic(file("csv")) as partial:
        whole.assign(**{n: whole[n].map(" ".join) for n in lists}).to_csv(partial, index=False)


def read(path: Path, schema: pa.Schema, remedy: str, records: str) -> pd.DataFrame:
    """What `write` wrote, from its Parquet file. A null buffer is 0, text that is null is empty.

    Raises `UserError` with the remedy where it is not there, cannot be read, has other columns than
    the schema, or is of other `records` than these.
    """
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise UserError(f"no {path}: {remedy} makes it") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}): {remedy} makes it anew") from None
    if not table.schema.equals(schema):
        raise UserError(f"{path} is of another version of this software: {remedy} makes it anew")
    if (table.schema.metadata or {}).get(b"twf_records", b"").decode() != records:
        raise UserError(f"{path} is of other records or tables than now: {remedy} makes it anew")
    frame = table.to_pandas()
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    frame[texts] = frame[texts].astype(object).fillna("")
    if "buffer" in frame:
        frame["buffer"] = frame["buffer"].fillna(0).astype(int)
    return frame


class Section(NamedTuple):
    """A table of a page: it is left out where it has no rows."""

    title: str
    rows: Sequence[TextRow]
    note: str = ""


class Compared(NamedTuple):
    """A frame that `twf compare` writes, of the records that are collected then."""

    file: Callable[[str, str], Path]  # of the study and the ending
    schema: pa.Schema
    note: str  # what its rows are

    def write(self, plan: Plan, frame: pd.DataFrame, page: Sequence[Section] | None) -> None:
        """Write the frame of a plan's study, and its page, if it has one."""
        file = partial(self.file, plan.study)
        write(frame, self.schema, file, _compared(plan))
        if page is not None:
            note = f"Study {plan.study}. {self.note} {plan.note or ''}"
            write_page(file("md"), note, page)

    def read(self, plan: Plan) -> pd.DataFrame:
        """What `write` has written; `UserError` where that is missing, or of another plan."""
        remedy = f"`twf compare {plan.study}`"
        return read(self.file(plan.study, "parquet"), self.schema, remedy, _compared(plan))


def _compared(plan: Plan) -> str:
    """Tells a study's collected records and tables, as planned, from others: a SHA-256."""
    texts = [sha256(runs_file(plan.study)), *(of.model_dump_json() for of in plan.tables.values())]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


# Text


class Markdown(str):
    """Text that is Markdown already: it is not escaped in a table."""


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


def markdown_block(text: str, language: str) -> str:
    """Text as a block of code in Markdown, whose fence no part of it can close."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def markdown_table(rows: Sequence[TextRow]) -> str:
    """Rows as a table in Markdown, numbers to the right; nothing where there are none."""
    if not rows:
        return ""
    right = numeric(rows)
    lines = [list(rows[0]), ["---:" if name in right else ":---" for name in rows[0]]]
    lines += [[_markdown_text(text) for text in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|") if isinstance(text, Markdown) else escape_markdown(text)


def numeric(rows: Sequence[TextRow]) -> set[str]:
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


def write_page(path: Path, note: str, sections: Sequence[Section]) -> None:
    """Write a page in Markdown."""
    fill("page.md.j2", {"note": note, "sections": sections}, path)


def fill(template: str, values: dict[str, Any], path: Path) -> None:
    """Fill a template of this package, in Markdown or, by its name, in LaTeX."""
    environment = _tex if template.endswith(".tex.j2") else _markdown
    with atomic(path) as partial:
        partial.write_text(environment.get_template(template).render(values), encoding="utf-8")
