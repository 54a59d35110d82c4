"""Tables from synthetic records, against numbers worked by hand."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from twf.errors import UserError
from twf.files import PUBLISHED, TABLE_FORMATS, runs_file, table_file
from twf.results import output, record, tables
from twf.study import Plan

TABLE = "main.split-cifar10"


def stream(final: float, forgotten: float) -> list[list[float]]:
    """Accuracies on 5 tasks: `final` at the end on each, the first four `forgotten` higher before.

    The fifth task is never better than at the end, so FAA is `final` and FF is `forgotten`.
    """
    return [[final + forgotten] * 5] * 4 + [[final] * 5]


def long_form(plan: Plan, table: str = TABLE) -> pd.DataFrame:
    """The long form, by method, buffer and protocol."""
    frame = tables.cells(plan, table, record.read(runs_file(plan.study)))
    return frame.set_index(["method", "buffer", "protocol"], drop=False).sort_index()


def cell(frame: pd.DataFrame, method: str, buffer: int | None, protocol: str = "class-il") -> Any:
    """The row of one cell."""
    same_buffer = frame["buffer"].isna() if buffer is None else (frame["buffer"] == buffer)
    rows = frame[(frame["method"] == method) & (frame["protocol"] == protocol) & same_buffer]
    assert len(rows) == 1
    return rows.iloc[0]


def markdown_row(plan: Plan, title: str, table: str = TABLE) -> list[str]:
    """The cells of a method's row in the Markdown table."""
    for line in table_file(plan.study, table, "md").read_text().splitlines():
        if line.startswith(f"| {title} |"):
            return [text.strip() for text in line.split("|")[2:-1]]
    raise AssertionError(f"no row {title}")


@pytest.fixture
def three_seeds(make_plan: Any, write_record: Any, collect: Any) -> Plan:
    """ER with 500: seeds at 60, 70 and 80; DER++ with 500: one diverged, one missing."""
    plan: Plan = make_plan([0, 1, 2])
    for seed, final in enumerate((60.0, 70.0, 80.0)):
        matrix = stream(final, 10.0 + seed)
        write_record(plan, f"split-cifar10.er.500.s{seed}", accuracy_class_il=matrix)
        write_record(plan, f"split-cifar10.joint.s{seed}")
    write_record(plan, "split-cifar10.derpp.500.s0", accuracy_class_il=stream(90.0, 5.0))
    write_record(
        plan,
        "split-cifar10.derpp.500.s1",
        status="diverged",
        reason="loss is nan",
        accuracy_class_il=[],
        accuracy_task_il=[],
    )
    collect(plan)
    return plan


def test_means_and_spreads_over_seeds(three_seeds: Plan) -> None:
    row = cell(long_form(three_seeds), "er", 500)
    assert (row["n"], row["n_planned"], row["n_diverged"]) == (3, 3, 0)
    assert row["faa_mean"] == pytest.approx(70.0)
    assert row["faa_std"] == pytest.approx(10.0)
    assert (row["faa_low"], row["faa_high"]) == (60.0, 80.0)  # of three, the range
    assert row["faa_interquartile_mean"] == pytest.approx(70.0)
    assert row["ff_mean"] == pytest.approx(11.0)
    assert (row["ff_low"], row["ff_high"]) == (10.0, 12.0)
    assert row["ff_std"] == pytest.approx(1.0)
    assert row["ff_paper_mean"] == pytest.approx(11.0)
    assert list(row["runs"]) == [f"split-cifar10.er.500.s{seed}" for seed in range(3)]
    assert (row["published_faa"], row["published_ff"]) == (67.24, 38.24)


def test_the_two_definitions_of_forgetting_differ(
    make_plan: Any, write_record: Any, collect: Any
) -> None:
    plan = make_plan([0])
    # Each of the first four tasks gains 4 at the end: nothing forgotten, or -4 by the paper.
    matrix = [[50.0] * 5] * 4 + [[54.0] * 5]
    write_record(plan, "split-cifar10.er.500.s0", accuracy_class_il=matrix)
    collect(plan)
    row = cell(long_form(plan), "er", 500)
    assert row["ff_mean"] == 0.0
    assert row["ff_paper_mean"] == -4.0


def test_joint_forgets_nothing(three_seeds: Plan) -> None:
    row = cell(long_form(three_seeds), "joint", None)
    assert row["faa_mean"] == 80.0
    assert pd.isna(row[["ff_mean", "ff_std", "ff_paper_mean", "published_ff"]]).all()
    assert row["published_faa"] == 92.89


def test_holes_are_counted_and_not_averaged(three_seeds: Plan) -> None:
    frame = long_form(three_seeds)
    partial = cell(frame, "derpp", 500)
    assert (partial["n"], partial["n_planned"], partial["n_diverged"]) == (1, 3, 1)
    assert partial["faa_mean"] == 90.0
    assert pd.isna(partial[["faa_std", "faa_low", "faa_high", "ff_low", "ff_high"]]).all()
    assert partial["faa_interquartile_mean"] == 90.0
    assert list(partial["runs"]) == ["split-cifar10.derpp.500.s0"]
    empty = cell(frame, "twf", 500)
    assert (empty["n"], empty["n_planned"]) == (0, 3)
    assert pd.isna(empty["faa_mean"])

    tables.write(three_seeds, TABLE)
    assert markdown_row(three_seeds, "DER++")[0] == "**90.00** (5.00) n=1/3, 1 diverged"
    assert markdown_row(three_seeds, "TwF") == ["—"] * 4
    assert "n=a/b" in table_file("small", TABLE, "md").read_text()


def test_a_record_of_other_parameters_is_a_hole(
    make_plan: Any, write_record: Any, collect: Any
) -> None:
    plan = make_plan([0, 1])
    write_record(plan, "split-cifar10.er.500.s0", digest="of something else")
    write_record(plan, "split-cifar10.er.500.s1")
    collect(plan)
    row = cell(long_form(plan), "er", 500)
    assert (row["n"], row["n_planned"]) == (1, 2)
    assert list(row["runs"]) == ["split-cifar10.er.500.s1"]


def test_a_cell_of_diverged_runs_says_so(make_plan: Any, write_record: Any, collect: Any) -> None:
    plan = make_plan([0])
    write_record(plan, "split-cifar10.er.500.s0", status="diverged", reason="loss is nan")
    collect(plan)
    tables.write(plan, TABLE)
    assert markdown_row(plan, "ER")[0] == "— n=0/1, 1 diverged"


def test_one_seed_has_no_spread(make_plan: Any, write_record: Any, collect: Any) -> None:
    plan = make_plan([0])
    for run in plan.runs:
        write_record(plan, run)
    collect(plan)
    tables.write(plan, TABLE)
    text = table_file("small", TABLE, "md").read_text()
    assert "one seed: no spread, no interval" in text
    assert "±" not in text
    assert "n=a/b" not in text
    assert markdown_row(plan, "Joint (UB)") == ["80.00"] * 4
    assert markdown_row(plan, "Finetune") == ["80.00 (0.00)"] * 4


def test_rows_are_ordered_and_the_best_rehearsal_method_is_bold(
    make_plan: Any, write_record: Any, collect: Any
) -> None:
    plan = make_plan([0], methods=["twf", "derpp", "er", "finetune", "joint"])
    for run_id, run in plan.runs.items():
        final = {"joint": 99.0, "er": 60.0, "derpp": 70.0, "twf": 70.004}.get(run.method, 20.0)
        matrix = [[final] * 5] * (1 if run.method == "joint" else 5)
        write_record(plan, run_id, accuracy_class_il=matrix)
    collect(plan)
    tables.write(plan, TABLE)
    text = table_file("small", TABLE, "md").read_text()
    lines = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    assert lines[2:] == ["| Joint (UB)", "| Finetune", "| ER", "| DER++", "| TwF"]
    assert markdown_row(plan, "Joint (UB)")[0] == "99.00"  # not among those compared
    assert markdown_row(plan, "ER")[0] == "60.00 (0.00)"
    assert markdown_row(plan, "DER++")[0] == "**70.00** (0.00)"  # alike to two decimals: both
    assert markdown_row(plan, "TwF")[0] == "**70.00** (0.00)"


def test_a_run_stands_under_the_protocol_it_was_tuned_for(
    make_plan: Any, write_record: Any, collect: Any
) -> None:
    plan = make_plan([0], benchmarks=["split-cifar100"])
    low, high = [[30.0] * 10] * 10, [[90.0] * 10] * 10
    write_record(plan, "split-cifar100.finetune.s0", accuracy_class_il=low, accuracy_task_il=low)
    write_record(
        plan, "split-cifar100.finetune.task-il.s0", accuracy_class_il=high, accuracy_task_il=high
    )
    collect(plan)
    frame = long_form(plan, "main.split-cifar100")
    assert cell(frame, "finetune", None, "class-il")["faa_mean"] == 30.0
    assert cell(frame, "finetune", None, "task-il")["faa_mean"] == 90.0


def test_files_hold_the_same_numbers_and_types(three_seeds: Plan) -> None:
    tables.write(three_seeds, TABLE)
    folder = table_file("small", TABLE, "md").parent
    assert {file.name for file in folder.iterdir()} == {f"{TABLE}.{e}" for e in TABLE_FORMATS}
    parquet = table_file("small", TABLE, "parquet")
    assert pq.read_schema(parquet).equals(tables.SCHEMA)
    long = pd.read_parquet(parquet)
    assert str(long["buffer"].dtype) == "Int64"
    assert str(long["faa_mean"].dtype) == "float64"
    assert list(cell(long, "twf", 500)["runs"]) == []
    flat = pd.read_csv(table_file("small", TABLE, "csv"), dtype={"buffer": "Int64"})
    assert list(flat.columns) == list(long.columns)
    numbers = long.columns.drop("runs")
    pd.testing.assert_frame_equal(flat[numbers], long[numbers], check_dtype=False)
    assert cell(flat, "er", 500)["runs"].split() == list(cell(long, "er", 500)["runs"])


def test_latex_escapes_the_title_and_spans_the_buffers(
    make_plan: Any, write_record: Any, collect: Any
) -> None:
    plan = make_plan([0, 1], title=r"50% of A & B_1 #2 $x$ ~ ^ {\rm}")
    for seed in (0, 1):
        write_record(plan, f"split-cifar10.finetune.s{seed}")
        write_record(plan, f"split-cifar10.er.500.s{seed}")
    write_record(plan, "split-cifar10.er.5120.s0")
    collect(plan)
    tables.write(plan, TABLE)
    text = table_file("small", TABLE, "tex").read_text()
    escaped = (
        r"50\% of A \& B\_1 \#2 \$x\$ \textasciitilde{} \textasciicircum{} "
        r"\{\textbackslash{}rm\}: Split CIFAR-10."
    )
    assert rf"\caption{{{escaped}" in text
    assert r"& \multicolumn{2}{c}{80.00 $\pm$ 0.00 (0.00)}" in text
    assert r"& \textbf{80.00 $\pm$ 0.00} (0.00)" in text
    assert r"& \shortstack{\textbf{80.00} (0.00)\\n=1/2}" in text
    assert r"Buffer size & 500 & 5120 & 500 & 5120 \\" in text
    assert r"\begin{tabular}{lcccc}" in text
    assert "±" not in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


def test_markdown_escapes_plain_text() -> None:
    assert output.escape_markdown("a|b *c* <script>") == r"a\|b \*c\* \<script\>"


def test_latex_has_plain_text_on_one_line() -> None:
    """An empty line would end the argument that it stands in."""
    assert output.escape_tex("a\n\n\\input{b}") == r"a \textbackslash{}input\{b\}"


@pytest.mark.parametrize("start", [*"=+-@\t\n", "\uff1d", "\uff20"])
def test_no_text_of_a_csv_is_a_formula(start: str) -> None:
    text = output.csv(pd.DataFrame({"text": [f"{start}1"], "number": [-1.5]}))
    assert pd.read_csv(io.StringIO(text)).to_dict("records") == [
        {"text": f"'{start}1", "number": -1.5}
    ]


def test_a_return_does_not_end_a_row_of_a_csv() -> None:
    text = output.csv(pd.DataFrame({"text": ["a\r=1", "\r=1", "a\r\nb"]}))
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows == [["text"], ["a\n=1"], ["'\n=1"], ["a\nb"]]


@pytest.mark.parametrize(
    ("benchmark", "source", "published"),
    [
        ("split-cifar100", "tiny-imagenet", 43.65),
        ("split-cifar100", "svhn", 36.46),
        ("split-cifar100", "letters", None),
        ("split-digits", "letters", None),
    ],
)
def test_the_published_number_is_that_of_the_same_pretraining(
    benchmark: str, source: str, published: float | None, make_plan: Callable[..., Plan]
) -> None:
    plan = make_plan([0], benchmarks=[benchmark], methods=["derpp"])
    name = f"main.{benchmark}"
    plan.tables[name] = plan.tables[name].model_copy(update={"source": source})
    frame = tables.cells(plan, name, record.SCHEMA.empty_table())
    found = frame[frame["protocol"] == "class-il"]["published_faa"].iloc[0]
    assert pd.isna(found) if published is None else found == published


def test_the_paper_has_no_number_without_pretraining(make_plan: Callable[..., Plan]) -> None:
    variants = {"pretrained": {"title": "P"}, "scratch": {"title": "S", "pretrained": False}}
    plan = make_plan([0], methods=["er"], buffers=[500], protocols=["class-il"], variants=variants)
    frame = tables.cells(plan, TABLE, record.SCHEMA.empty_table()).set_index("variant")
    assert frame["published_faa"]["pretrained"] == 67.24
    assert pd.isna(frame["published_faa"]["scratch"])


def test_missing_published_numbers_are_named(three_seeds: Plan) -> None:
    PUBLISHED.unlink()
    with pytest.raises(UserError, match="results/published.csv"):
        tables.write(three_seeds, TABLE)


def test_an_unknown_table_is_named(three_seeds: Plan) -> None:
    with pytest.raises(UserError, match="no table 'other' in study small; there is main.split-"):
        tables.write(three_seeds, "other")


@pytest.mark.parametrize(("switch", "shown"), [("published", "(0.00)"), ("paper", "(-20.00)")])
def test_f8_says_which_forgetting_is_shown(
    make_plan: Any, write_record: Any, collect: Any, switch: str, shown: str
) -> None:
    """Accuracy that rises by 20 points in the last phase: forgotten is nothing, or minus 20."""
    plan = make_plan([0], methods=["finetune"])
    table = plan.tables[TABLE].model_copy(update={"forgetting": switch})
    plan = plan.model_copy(update={"tables": {TABLE: table}})
    rising = [[50.0] * 5] * 4 + [[70.0] * 5]
    write_record(plan, "split-cifar10.finetune.s0", accuracy_class_il=rising)
    collect(plan)
    tables.write(plan, TABLE)
    assert markdown_row(plan, "Finetune")[0] == f"70.00 {shown}"
    assert (
        tables.FORGETTING[switch].split(" (")[0][:40]
        in table_file("small", TABLE, "md").read_text()
    )
