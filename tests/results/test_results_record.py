"""Records: what is read, what is refused, and collecting some of them."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest

from twf.errors import UserError
from twf.files import record_file, runs_file
from twf.results import figures, record, report, tables
from twf.study import Plan

TORN, OLD, MISSING, DONE = (
    f"split-cifar10.{name}.s0" for name in ("joint", "finetune", "er.500", "er.5120")
)


@pytest.fixture
def plan(make_plan: Any, write_record: Any) -> Plan:
    """Four runs: a torn record, one of an older schema, none, and a good one."""
    plan: Plan = make_plan([0], methods=["joint", "finetune", "er"])
    for run in plan.runs:
        write_record(plan, run)
    record_file("small", TORN).write_bytes(b"PAR1")
    old = pq.read_table(record_file("small", OLD))
    metadata = {"twf_record_version": "1"}
    pq.write_table(old.replace_schema_metadata(metadata), record_file("small", OLD))
    record_file("small", MISSING).unlink()
    return plan


def gather(plan: Plan) -> dict[str, str]:
    files = [record_file(plan.study, run) for run in plan.runs]
    return record.collect_partial(files, runs_file(plan.study))


def test_collecting_all_names_the_first_that_is_not_there(plan: Plan) -> None:
    files = [record_file(plan.study, run) for run in (DONE, MISSING)]
    with pytest.raises(UserError, match=f"no record .*{MISSING}.parquet"):
        record.collect(files, runs_file(plan.study))
    assert not runs_file(plan.study).exists()


@pytest.mark.parametrize(("run", "said"), [(OLD, "record version 1, this"), (TORN, "cannot be")])
def test_an_unreadable_record_is_refused_and_named(plan: Plan, run: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        record.collect([record_file("small", run)], runs_file("small"))
    assert f"{run}.parquet" in str(caught.value)
    assert "delete it and run again" in " ".join(str(caught.value).split())


def test_collecting_some_says_why_others_are_not_there(plan: Plan) -> None:
    reasons = gather(plan)
    assert set(reasons) == {TORN, OLD, MISSING}
    assert reasons[MISSING] == ""
    assert "cannot be read" in reasons[TORN]
    assert "record version 1" in reasons[OLD]
    rows = {row["run"]: row for row in record.read(runs_file("small")).to_pylist()}
    statuses = {run: row["status"] for run, row in rows.items()}
    assert statuses == {TORN: "unreadable", OLD: "unreadable", DONE: "finished"}
    assert rows[OLD]["reason"] == reasons[OLD]


def test_an_unreadable_record_is_a_hole_in_tables_and_report(plan: Plan) -> None:
    gather(plan)
    long = tables.cells(plan, "main.split-cifar10", record.read(runs_file("small")))
    counts = long[long["protocol"] == "class-il"].set_index(["method", "buffer"])["n"]
    assert counts.tolist() == [0, 0, 0, 1]
    tables.write(plan, "main.split-cifar10")
    figures.write(plan)
    report.write(plan)
    page = (runs_file("small").parent / "report.html").read_text()
    assert "4 planned: 1 finished, 2 unreadable, 1 missing" in page
    assert "record version 1, this code reads" in page


def test_nothing_to_collect_is_a_table_of_no_rows(make_plan: Any) -> None:
    plan = make_plan([0])
    assert set(gather(plan)) == set(plan.runs)
    assert record.read(runs_file("small")).num_rows == 0


def test_some_columns_are_read_alone(plan: Plan) -> None:
    assert record.read(record_file("small", DONE), ["digest"]).column_names == ["digest"]
    assert record.read_digest(record_file("small", DONE)) == plan.runs[DONE].digest
