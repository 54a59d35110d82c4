"""What is read again is what was written; text becomes Markdown and LaTeX."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from twf.errors import UserError
from twf.results import cells, show
from twf.results.frame import Results
from twf.results.paper import gains


@pytest.fixture
def written(make_plan, recorded) -> Results:
    plan = make_plan([0], methods=["er", "twf"], buffers=[500])
    results = recorded(plan, dict.fromkeys(plan.runs, 70.0))
    gains.write(results, cells.of_tables(results))
    return results


def test_what_is_missing_torn_or_of_something_else_is_named_with_its_remedy(written, recorded):
    path = gains.COMPARED.file("small", "parquet")
    whole = pq.read_table(path)
    for change, said in (
        (lambda: recorded(written.plan), "is of other records or tables than now"),
        (lambda: pq.write_table(whole.drop_columns(["n"]), path), "another version"),
        (lambda: path.write_bytes(b"PAR1"), "cannot be read"),
        (path.unlink, "no "),
    ):
        change()
        with pytest.raises(UserError, match=f"{said}.*: `twf compare small` makes it"):
            gains.COMPARED.read(written.plan)


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


def test_an_end_that_rounds_to_zero_keeps_its_side():
    assert show.interval(-0.003, 4.97, "+") == "-0.00 to +4.97"
    assert show.interval(0.003, 4.97, "+") == "+0.00 to +4.97"
    assert show.interval(-0.0, 0.0, "+") == "+0.00 to +0.00"
    assert show.interval(float("nan"), 1.0) == "—"
