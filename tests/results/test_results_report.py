"""The report: what it says, what it escapes, and that it needs no other file."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pyarrow.parquet as pq
import pytest

from twf.errors import UserError
from twf.files import figure_index, report_file, runs_file, table_file
from twf.results import figures, record, report, tables
from twf.study import Plan

HOSTILE = '<script>alert(1)</script>"&'


class Elements(HTMLParser):
    """Gathers the names and attributes of all elements, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def make_report(plan: Plan) -> str:
    """Make the tables, the figures and the report of collected records; return the page."""
    for table in plan.tables:
        tables.write(plan, table)
    figures.write(plan)
    report.write(plan)
    return report_file(plan.study).read_text()


@pytest.fixture(autouse=True)
def one_kind_of_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes time: one figure for each table is enough here."""
    monkeypatch.setattr(figures, "KINDS", {"accuracy": figures.KINDS["accuracy"]})


@pytest.fixture
def plan(make_plan: Any, write_record: Any, collect: Any) -> Plan:
    """Two seeds: ER's second with 500 diverged, all of TwF's missing, the rest finished."""
    plan: Plan = make_plan([0, 1], study_title=f"Study {HOSTILE}")
    for run_id, run in plan.runs.items():
        if run_id == "split-cifar10.er.500.s1":
            write_record(plan, run_id, status="diverged", reason=f"loss is nan {HOSTILE}")
        elif run.method != "twf":
            write_record(plan, run_id)
    collect(plan)
    return plan


def test_summary_counts_the_runs(plan: Plan) -> None:
    text = Elements(make_report(plan)).text
    # Joint, Finetune, and three methods with two buffers: 8 runs a seed.
    assert "16 planned: 11 finished, 1 diverged, 4 missing" in text
    assert "6.00 hours" in text  # 12 records of half an hour
    assert "0.1.0, commit abc1234" in text
    assert "2.13.0" in text
    assert "Code differs within" not in text


def test_tables_show_means_holes_and_the_published_numbers(plan: Plan) -> None:
    text = Elements(make_report(plan)).text
    assert "80.00 ± 0.00 (0.00)" in text
    assert "n=1/2, 1 diverged" in text
    assert "paper 83.65 (11.59)" in text


def test_hostile_text_is_escaped(make_plan: Any, write_record: Any, collect: Any) -> None:
    plan = make_plan([0], study_title=f"Study {HOSTILE}", title=f"Experiment {HOSTILE}")
    for run_id in plan.runs:
        provenance = {
            "parameters": {HOSTILE: HOSTILE},
            "code": {"version": HOSTILE, "commit": HOSTILE},
            "versions": {"torch": HOSTILE},
        }
        write_record(
            plan,
            run_id,
            status="finished" if "joint" in run_id else "diverged",
            reason=f"loss is nan {HOSTILE}",
            device=HOSTILE,
            provenance=json.dumps(provenance),
        )
    collect(plan)
    page = make_report(plan)
    elements = Elements(page)
    assert "<script" not in page
    assert "script" not in elements.names
    assert f"Study {HOSTILE}" in elements.text
    assert f"loss is nan {HOSTILE}" in elements.text


def test_report_needs_no_other_file(plan: Plan) -> None:
    page = make_report(plan)
    elements = Elements(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(elements.names)
    for name, value in elements.attributes:
        if name in ("src", "href", "xlink:href", "action"):
            assert value is not None
            assert value.startswith("#"), value
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_every_run_is_listed_with_its_parameters(plan: Plan) -> None:
    page = make_report(plan)
    assert page.count("<details>") == len(plan.runs)
    text = Elements(page).text
    for run in plan.runs:
        assert run in text
    assert '"lambda_fp_replay": 0.1' in text  # of a missing run, from the plan


def test_each_table_has_its_figures_of_the_methods_that_ran(plan: Plan) -> None:
    page = make_report(plan)
    charts = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(charts) == 1  # as `one_kind_of_figure` has it
    assert "DER++" in charts[0]
    assert "TwF" not in charts[0]  # no finished run
    assert "Average accuracy over the tasks seen, after each task. Mean over" in page
    identifiers = [value for name, value in Elements("".join(charts)).attributes if name == "id"]
    assert not [
        name for name in identifiers if re.fullmatch(r"(figure|axes|patch)_\d+", name or "")
    ]


def test_same_records_give_the_same_bytes(plan: Plan) -> None:
    assert make_report(plan) == make_report(plan)


def test_records_of_different_code_are_named(
    make_plan: Any, write_record: Any, collect: Any
) -> None:
    plan = make_plan([0, 1], methods=["er", "derpp"])
    for run_id, run in plan.runs.items():
        version = f"hash of seed {run.seed}" if run.method == "er" else "one hash"
        code = {"version": "0.1.0", "commit": "abc1234", "method_hash": version}
        provenance = json.dumps({"parameters": {}, "code": code, "inputs": {}, "versions": {}})
        write_record(plan, run_id, provenance=provenance)
    collect(plan)
    summary = Elements(make_report(plan)).text.partition("Code differs within")[2]
    assert summary.startswith("ER\n")


def test_nothing_finished_still_makes_a_report(make_plan: Any) -> None:
    plan = make_plan([0])
    runs_file("small").parent.mkdir(parents=True)
    pq.write_table(record.SCHEMA.empty_table(), runs_file("small"))
    page = make_report(plan)
    assert "8 planned: 8 missing" in page
    assert "<svg" not in page


def test_figures_not_made_are_named(plan: Plan) -> None:
    make_report(plan)
    figure_index("small").unlink()
    with pytest.raises(UserError, match="figures/index.csv"):
        report.write(plan)


def test_a_table_not_made_is_named(plan: Plan) -> None:
    make_report(plan)
    table_file("small", "main.split-cifar10", "parquet").unlink()
    with pytest.raises(UserError, match="main.split-cifar10.parquet"):
        report.write(plan)
