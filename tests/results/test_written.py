"""What `twf table` and `twf compare` write: one frame in Parquet and CSV, read back as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from project import PROJECT

from twf.cli.results import write_compared
from twf.errors import UserError
from twf.files import TABLE_FORMATS, table_file
from twf.results import cells, show
from twf.results.frame import Results
from twf.results.paper import central, comparison, evaluation, gains, order
from twf.study import reading

TABLE = "main.split-cifar10"


@pytest.fixture
def written(make_plan, recorded) -> Results:
    """Runs of four methods with two seeds, some diverged or missing, and all that is made of them.

    Without a buffer, with one seed, without any and of two precisions there are cells too.
    """
    plan = make_plan([0, 1], methods=["joint", "finetune", "er", "derpp", "twf"], buffers=[500])
    levels: dict[str, Any] = {
        name: {"er": 60.0, "derpp": 70.0}.get(run.method, 80.0) + run.seed
        for name, run in plan.runs.items()
    }
    del levels["split-cifar10.finetune.s0"]
    levels |= {name: {"status": "diverged"} for name in levels if "twf" in name}
    results = recorded(plan, levels)
    cells.write(results, plan.tables.values())
    write_compared(reading.load(PROJECT / "params.yaml"), results)
    return results


@pytest.mark.parametrize("part", [cells, comparison, central, evaluation, gains, order])
def test_files_hold_the_same_rows_and_types(written, part: Any):
    file: Callable[[str], Path] = partial(table_file, "small", TABLE)
    if part is not cells:
        file = partial(part.COMPARED.file, "small")
    assert pq.read_schema(file("parquet")).equals(part.SCHEMA)
    frame, flat = pd.read_parquet(file("parquet")), pd.read_csv(file("csv"))
    assert len(frame) and list(flat.columns) == list(frame.columns) == part.SCHEMA.names
    for field in part.SCHEMA:
        ours, theirs = frame[field.name], flat[field.name]
        if pa.types.is_list(field.type):
            ours, theirs = ours.map(" ".join), theirs.astype(object).fillna("")
        pd.testing.assert_series_equal(
            ours.astype(object).where(ours.notna(), None),
            theirs.astype(object).where(theirs.notna(), None),
            check_dtype=False,
        )
    assert flat["buffer"].fillna(1).all() if "buffer" in flat else True  # 0 is null in a file
    again = part.COMPARED.read("small") if part is not cells else cells.of_results(written)
    assert len(again) == len(frame) and not again.get("buffer", frame.iloc[:, 0]).isna().any()


@pytest.mark.parametrize("part", [central, evaluation])
def test_the_page_shows_the_rows_that_the_file_has(written, part: Any):
    shown = show.markdown_table(part.text_rows(part.COMPARED.read("small")))
    assert shown in part.COMPARED.file("small", "md").read_text()


def test_each_table_has_its_four_files_alone(written):
    made = {path.name for path in table_file("small", TABLE, "md").parent.glob(f"{TABLE}.*")}
    assert made == {f"{TABLE}.{ending}" for ending in TABLE_FORMATS}


def test_what_is_missing_torn_or_of_something_else_is_named_with_its_remedy(written, recorded):
    path = gains.COMPARED.file("small", "parquet")
    whole = pq.read_table(path)
    for change, said in (
        (lambda: recorded(written.plan), "is of other records than are collected"),
        (lambda: pq.write_table(whole.drop_columns(["n"]), path), "another version"),
        (lambda: path.write_bytes(b"PAR1"), "cannot be read"),
        (path.unlink, "no "),
    ):
        change()
        with pytest.raises(UserError, match=f"{said}.*: `twf compare small` makes it"):
            gains.COMPARED.read("small")


def test_text_becomes_markdown_and_latex_on_one_line():
    assert show.escape_markdown("a|b\n*c* <script>") == r"a\|b \*c\* \<script\>"
    assert show.escape_tex("a\n\n\\input{b}") == r"a \textbackslash{}input\{b\}"
    assert show.escape_tex("50% of A & B_1 #2 $x$ ~ ^ <|>") == (
        r"50\% of A \& B\_1 \#2 \$x\$ \textasciitilde{} \textasciicircum{} "
        r"\textless{}\textbar{}\textgreater{}"
    )


def test_numbers_of_a_markdown_table_are_to_the_right():
    texts = ["70.00 (1.20)", "-1.00 to +2.00", "2/3, 1 diverged", "2.13.0", "7f00", "2 of 3"]
    rows = [{str(i): text for i, text in enumerate(texts)}, dict.fromkeys("012345", "—")]
    assert show.numeric(rows) == {"0", "1", "2"}
    lines = show.markdown_table([{"a": "1", "c": show.Markdown("`d|e`")}]).splitlines()
    assert lines == ["| a | c |", "| ---: | :--- |", r"| 1 | `d\|e` |"]
