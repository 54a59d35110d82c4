"""How tables become files: rows to a typed frame, and to Parquet, CSV, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, StrictUndefined

from twf.files import atomic
from twf.results.statistics import Interval

_TEX = {character: f"\\{character}" for character in "&%$#_{}"}
_TEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_TEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
_TEX |= {"±": r"$\pm$", "—": "---"}


# What a spreadsheet takes for a formula's start; the wide forms of East Asian text too.
_FORMULA = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


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


def read_made(path: Path, command: str) -> pd.DataFrame | str:
    """A table of a study; where it has not been made, the command that makes it."""
    return pd.read_parquet(path) if path.exists() else command


_markdown = Environment(  # noqa: S701 - it makes no HTML: filters escape
    loader=PackageLoader("twf.results"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_markdown.filters |= {"md": escape_markdown, "tex": escape_tex, "block": markdown_block}
_tex = _markdown.overlay(  # braces and per cent signs mean something else in LaTeX
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    comment_start_string="<#",
    comment_end_string="#>",
)


def to_frame(rows: list[dict[str, Any]], schema: pa.Schema) -> pd.DataFrame:
    """Rows as a frame with the columns of a schema; what is absent is null, integers are Int64."""
    frame: pd.DataFrame = pa.Table.from_pylist(rows, schema=schema).to_pandas(
        types_mapper={pa.int64(): pd.Int64Dtype()}.get
    )
    return frame


def ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    """The columns `NAME_low` and `NAME_high` of an interval; null where there is none."""
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def write_long(frame: pd.DataFrame, schema: pa.Schema, file: Callable[[str], Path]) -> None:
    """Write a frame as Parquet and as CSV, where lists are words; `file` names them by ending."""
    with atomic(file("parquet")) as partial:
        pq.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False), partial)
    lists = [field.name for field in schema if pa.types.is_list(field.type)]
    flat = frame.assign(**{name: frame[name].map(" ".join) for name in lists})
    with atomic(file("csv")) as partial:
        partial.write_text(csv(flat))


def write_text(template: str, values: dict[str, Any], path: Path) -> None:
    """Fill a template of this package, in Markdown or, by its name, in LaTeX."""
    environment = _tex if template.endswith(".tex.j2") else _markdown
    with atomic(path) as partial:
        partial.write_text(environment.get_template(template).render(values))
