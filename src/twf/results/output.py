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


def escape_tex(text: str) -> str:
    """Plain text as LaTeX source."""
    return "".join(_TEX.get(character, character) for character in text)


def escape_markdown(text: str) -> str:
    """Plain text as Markdown source, fit for a cell of a table too."""
    return re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", text)


_markdown = Environment(
    loader=PackageLoader("twf.results"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_markdown.filters |= {"md": escape_markdown, "tex": escape_tex}
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
        flat.to_csv(partial, index=False)


def write_text(template: str, values: dict[str, Any], path: Path) -> None:
    """Fill a template of this package, in Markdown or, by its name, in LaTeX."""
    environment = _tex if template.endswith(".tex.j2") else _markdown
    with atomic(path) as partial:
        partial.write_text(environment.get_template(template).render(values))
