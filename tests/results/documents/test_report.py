"""The report: what it says, what it escapes, and that it needs no other file."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from project import PROJECT

from twf.errors import UserError
from twf.files import (
    PARAMS,
    comparison_file,
    figure_file,
    figure_index,
    report_file,
    runs_file,
    table_file,
)
from twf.results import figures, record, tables
from twf.results.documents import report, report_runs, report_summary, statement
from twf.results.paper import claim_evaluation, comparison
from twf.study import Plan, reading

HEADINGS = {"h1", "h2", "h3", "h4"}
HOSTILE = (
    """=HYPERLINK("https://x")</script><script>alert(1)</script>"><img src=x onerror=alert(2)>"""
    """ `tick` | pipe [link](javascript:alert(3)) **bold** .. raw:: html $x$ --> &"""
)


class Elements(HTMLParser):
    """Gathers the names and attributes of all elements, and all text but that of scripts."""

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
        if self.names and self.names[-1] != "script":
            self.text += data

    def values(self, name: str) -> list[str]:
        """All values of an attribute."""
        return [value or "" for attribute, value in self.attributes if attribute == name]


def make_report(plan: Plan) -> str:
    """Make the tables, the figures and the report of collected records; return the page."""
    for table in plan.tables:
        tables.write(plan, table)
    figures.write(plan)
    return report_of(plan)


def report_of(plan: Plan) -> str:
    """Make the report of what is there; return the page."""
    report.write(plan)
    return report_file(plan.study).read_text()


def describe(plan: Plan) -> None:
    """Write the statement and the model cards."""
    statement.write(reading.load(PARAMS), plan)


def compare(plan: Plan) -> None:
    """Hold the study against the paper."""
    project = PROJECT
    comparison.write(reading.load(project / "params.yaml"), plan)
    claim_evaluation.write(plan)


@pytest.fixture(autouse=True)
def one_kind_of_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes time: one figure for each table is enough here."""
    monkeypatch.setattr(figures.kinds, "KINDS", {"accuracy": figures.KINDS["accuracy"]})


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
    compare(plan)
    describe(plan)
    page = make_report(plan)
    elements = Elements(page)
    assert elements.names.count("script") == 1  # the report's own, of which the policy has the hash
    assert not {"img", "iframe", "object"} & set(elements.names)
    assert HOSTILE not in page
    assert f"Study {HOSTILE}" in elements.text
    assert f"Experiment {HOSTILE}" in elements.text
    assert f"loss is nan {HOSTILE}" in elements.text
    assert json.dumps(HOSTILE) in elements.text  # a parameter
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    assert not [link for link in elements.values("href") if link.startswith("javascript")]
    folder = report_file(plan.study).parent
    for path in (*folder.rglob("*.md"), *folder.rglob("*.tex"), *folder.rglob("*.svg")):
        text = path.read_text()
        assert HOSTILE not in text, path
        assert "<script" not in text.replace("\\<", ""), path
    for path in folder.rglob("*.csv"):
        with path.open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if cell.startswith("=")], path
    files = dict(re.findall(r'download="([^"]+)" href="data:text/csv;[^,]*,([^"]+)"', page))
    runs = pd.read_csv(io.BytesIO(base64.b64decode(files["small-runs.csv"])))
    assert set(runs["device"]) == {f"'{HOSTILE}"}


def test_policy_allows_the_reports_own_script_alone(plan: Plan) -> None:
    page = make_report(plan)
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [text for text in Elements(page).values("content") if "default-src" in text]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["img-src"] == "data:"
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_report_needs_no_other_file(plan: Plan) -> None:
    compare(plan)
    describe(plan)
    page = make_report(plan)
    elements = Elements(page)
    assert not {"link", "img", "iframe", "object"} & set(elements.names)
    for name in ("src", "href", "xlink:href", "action"):
        for value in elements.values(name):
            assert value.startswith(("#", "data:text/csv;", "data:text/markdown;")), value
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_every_run_is_listed_with_what_it_was_made_from(plan: Plan) -> None:
    page = make_report(plan)
    assert page.count("<details>") == len(plan.runs)
    text = Elements(page).text
    for run in plan.runs:
        assert f"twf run small {run}" in text
        assert f"logs/small/runs/{run}.log" in text
    assert '"lambda_fp_replay": 0.1' in text  # of a missing run, from the plan
    assert "method_hash: " in text


def test_every_link_leads_to_one_place_in_the_page(plan: Plan) -> None:
    compare(plan)
    elements = Elements(make_report(plan))
    places = elements.values("id")
    links = [link[1:] for link in elements.values("href") if link.startswith("#")]
    assert {"run-split-cifar10.er.500.s1", "cell-main.split-cifar10.er.500.class-il"} <= set(links)
    for link in links:
        assert places.count(link) == 1, link


def test_headings_go_down_one_level_at_a_time(plan: Plan) -> None:
    compare(plan)
    levels = [int(name[1]) for name in Elements(make_report(plan)).names if name in HEADINGS]
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


def test_paper_is_beside_the_study(plan: Plan) -> None:
    compare(plan)
    text = Elements(make_report(plan)).text
    # 5 methods, 3 of them with 2 buffers, under 2 protocols: TwF's 4 cells are missing.
    assert "Of the 144 numbers that the paper prints, 12 have been measured." in text
    assert "Of 14 claims of the paper, on our numbers:" in text
    assert "snakemake --cores all results/small/runs/split-cifar10.er.500.s0.parquet" in text


def test_sentences_count_the_verdicts() -> None:
    long = pd.DataFrame({"verdict": ["equivalent"] * 3 + ["lower", "undecided"] + ["not run"] * 4})
    sentences = report_summary.agreement(long)
    assert sentences[0] == "Of the 9 numbers that the paper prints, 5 have been measured."
    assert sentences[1].startswith("3 agree")
    assert "higher in 0 and lower in 1" in sentences[2]
    assert sentences[3].startswith("1 are undecided")
    assert "None of the 4" in report_summary.agreement(long[-4:])[0]


def test_holes_are_counted_by_table(plan: Plan) -> None:
    rows = tables.records(plan, record.read_collected(plan.study))
    (hole,) = report_summary.holes(plan, rows)
    assert (hole["name"], hole["planned"]) == ("main.split-cifar10", 16)
    counts = {"finished": 11, "diverged": 1, "stale": 0, "unreadable": 0, "missing": 4}
    assert hole["counts"] == counts


def test_data_inside_the_page_are_the_studys(plan: Plan) -> None:
    page = make_report(plan)
    files = dict(re.findall(r'download="([^"]+)" href="data:text/csv;[^,]*,([^"]+)"', page))
    assert "small-cells.csv" in files
    runs = pd.read_csv(io.BytesIO(base64.b64decode(files["small-runs.csv"])))
    assert list(runs["run"]) == list(plan.runs)
    assert runs["status"].value_counts().to_dict() == {"finished": 11, "missing": 4, "diverged": 1}
    assert (runs.loc[runs["status"] == "finished", "faa_class_il"] == 80.0).all()
    name = "accuracy.main.split-cifar10"
    assert base64.b64decode(files[f"{name}.csv"]) == figure_file("small", name, "csv").read_bytes()


def test_curve_goes_over_all_epochs() -> None:
    assert report_runs.curve([1.0]) is None
    curve = report_runs.curve([2.0, 1.0, float("nan"), 0.0, 1.0])
    assert curve is not None
    assert curve["points"] == "0,0 60,24 180,48 240,24"  # from the top left; nan is left out
    assert (curve["epochs"], curve["first"], curve["highest"]) == (5, "2", "2")
    long = report_runs.curve([1.0 / (1 + i) for i in range(1000)])
    assert long is not None
    points = long["points"].split()
    assert len(points) == report_runs.POINTS
    assert (points[0], points[-1][:4]) == ("0,0", "240,")


def test_losses_are_those_of_each_run(make_plan: Any, write_record: Any, collect: Any) -> None:
    plan = make_plan([0], methods=["er"])
    losses = {run: [float(i), 2.0 + i] if i else [] for i, run in enumerate(plan.runs)}
    for run, values in losses.items():
        history = [
            {"phase": 0, "epoch": i, "seconds": 1.0, "loss": loss, "terms": {"stream": loss}}
            for i, loss in enumerate(values)
        ]
        write_record(plan, run, history=history)
    collect(plan)
    assert record.read_losses(plan.study) == losses
    assert '<polyline points="0,32 240,0"' in report_of(plan)


def test_each_table_has_its_figures_of_the_methods_that_ran(plan: Plan) -> None:
    page = make_report(plan)
    charts = re.findall(r"<figure>.*?</figure>", page, flags=re.DOTALL)
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
    assert "<figure" not in page
    assert "<svg" not in page


def test_without_records_the_command_is_named(make_plan: Any) -> None:
    with pytest.raises(UserError, match="twf collect small"):
        report.write(make_plan([0]))


def test_what_has_not_been_made_is_named_with_its_command(plan: Plan) -> None:
    text = Elements(report_of(plan)).text
    commands = (
        "table small main.split-cifar10",
        "compare small",
        "figures small",
        "describe small",
    )
    for command in commands:
        assert f"twf {command}" in text
    assert "16 planned: 11 finished" in text
    make_report(plan)
    compare(plan)
    describe(plan)
    text = Elements(report_of(plan)).text
    assert "Not made yet" not in text
    table_file("small", "main.split-cifar10", "parquet").unlink()
    comparison_file("small", "parquet").unlink()
    text = Elements(report_of(plan)).text
    assert "twf table small main.split-cifar10" in text
    assert "twf compare small" in text
    assert "twf figures small" not in text


def test_a_figure_that_is_listed_and_not_there_is_named(plan: Plan) -> None:
    make_report(plan)
    figure_file("small", "accuracy.main.split-cifar10", "svg").unlink()
    with pytest.raises(UserError, match="accuracy.main.split-cifar10.svg"):
        report.write(plan)
    assert figure_index("small").exists()


def test_figures_too_large_for_the_page_are_named(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_report(plan)
    monkeypatch.setattr(report, "PAGE_LIMIT", 100)
    text = Elements(report_of(plan)).text
    assert "Too large for this page: results/small/figures/accuracy.main.split-cifar10.svg" in text
