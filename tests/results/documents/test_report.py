"""The report: what it says, what it escapes, and that it needs no other file."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from hostile import Elements

from twf.errors import UserError
from twf.files import PARAMS, figure_file, report_file, statement_file, table_file
from twf.results import figures, record, tables
from twf.results.documents import report, report_runs, statement, summary
from twf.results.paper import comparison, gains
from twf.results.paper.claims import CLAIMS
from twf.results.runs import Runs
from twf.study import Plan, reading

HEADINGS = {"h1", "h2", "h3", "h4"}
HOSTILE = (
    """=HYPERLINK("https://x")</script><script>alert(1)</script>"><img src=x onerror=alert(2)>"""
    """ `tick` | pipe [link](javascript:alert(3)) **bold** .. raw:: html $x$ --> &"""
)


def make_report(runs: Runs, **switches: str) -> str:
    """Make the report of what is there, with some switches of fidelity changed; the page."""
    params = reading.load(PARAMS)
    changed = params.model_copy(update={"fidelity": params.fidelity | switches})
    report.write(changed, runs)
    return report_file("small").read_text()


def whole_report(runs: Runs) -> str:
    """Make figures and descriptions, and the report of all; the page."""
    figures.write(runs.plan)
    statement.write(reading.load(PARAMS), runs)
    return make_report(runs)


def files_in(page: str) -> dict[str, bytes]:
    """The CSV files inside a page, by name."""
    found = re.findall(r'download="([^"]+)" href="data:text/csv;[^,]*,([^"]+)"', page)
    return {name: base64.b64decode(data) for name, data in found}


@pytest.fixture(autouse=True)
def one_kind_of_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes time: one figure for each table is enough here."""
    monkeypatch.setattr(figures.kinds, "KINDS", {"accuracy": figures.KINDS["accuracy"]})


@pytest.fixture
def runs(make_plan, recorded) -> Runs:
    """Two seeds: ER's second with 500 diverged, all of TwF's missing, the rest finished."""
    plan = make_plan([0, 1], study_title=f"Study {HOSTILE}")
    finished = {name: 80.0 for name, run in plan.runs.items() if run.method != "twf"}
    diverged = {"status": "diverged", "reason": f"loss is nan {HOSTILE}"}
    return recorded(plan, finished | {"split-cifar10.er.500.s1": diverged})


@pytest.fixture
def page(runs) -> str:
    """The report of these runs, with figures and descriptions."""
    return whole_report(runs)


def test_the_page_says_what_the_records_do(page):
    """Joint, Finetune, and three methods with two buffers: 8 runs a seed, of half an hour each."""
    text = Elements(page).text
    for said in (
        "16 planned: 11 finished, 1 diverged, 4 missing",
        "6.00 hours",
        "0.1.0, commit abc1234",
        "2.13.0",
        *("80.00 ± 0.00 (0.00)", "n=1/2, 1 diverged", "paper 83.65 (11.59)"),
        # 5 methods, 3 of them with 2 buffers, under 2 protocols: TwF's 4 cells are missing
        "Of the 144 numbers that the paper prints, 12 have been measured.",
        f"Of {len(CLAIMS)} claims of the paper, on our numbers:",
        "snakemake --cores all results/small/runs/split-cifar10.er.500.s0.parquet",
        *("Deviations beyond switches", "optimizer, rate, batch and augmentation are ours"),
    ):
        assert said in text, said
    assert "Code differs within" not in text
    assert [claim.name for claim in CLAIMS if claim.statement not in text] == []
    levels = [int(name[1]) for name in Elements(page).names if name in HEADINGS]
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    order = ("main-section", "claims", "comparison", "tables", "cells", "runs")  # folded ones last
    places = [page.index(f'id="{name}"') for name in order]
    assert places == sorted(places)


def test_hostile_text_is_escaped(make_plan, recorded):
    plan = make_plan([0], study_title=f"Study {HOSTILE}", title=f"Experiment {HOSTILE}")
    provenance = {
        "parameters": {HOSTILE: HOSTILE},
        "code": {"version": HOSTILE, "commit": HOSTILE},
        "versions": {"torch": HOSTILE},
    }
    said = {"reason": f"loss is nan {HOSTILE}", "device": HOSTILE}
    said["provenance"] = json.dumps(provenance)
    states = {run: "finished" if "joint" in run else "diverged" for run in plan.runs}
    runs = recorded(plan, {run: said | {"status": state} for run, state in states.items()})
    for table in plan.tables.values():
        tables.write(runs, table)
    comparison.write(reading.load(PARAMS), runs)
    gains.write(runs)
    page = whole_report(runs)
    elements = Elements(page)
    assert elements.names.count("script") == 1  # the report's own, of which the policy has the hash
    assert not {"img", "iframe", "object"} & set(elements.names)
    assert HOSTILE not in page
    # a title, a reason, a parameter
    for text in (f"Study {HOSTILE}", f"Experiment {HOSTILE}", f"loss is nan {HOSTILE}"):
        assert text in elements.text
    assert json.dumps(HOSTILE) in elements.text
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
    csv_of_runs = pd.read_csv(io.BytesIO(files_in(page)["small-runs.csv"]))
    assert set(csv_of_runs["device"]) == {f"'{HOSTILE}"}


def test_policy_allows_the_reports_own_script_alone(page):
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [text for text in Elements(page).values("content") if "default-src" in text]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["img-src"] == "data:"
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_report_needs_no_other_file(page):
    elements = Elements(page)
    assert not {"link", "img", "iframe", "object"} & set(elements.names)
    for name in ("src", "href", "xlink:href", "action"):
        for value in elements.values(name):
            assert value.startswith(("#", "data:text/csv;", "data:text/markdown;")), value
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_every_run_is_listed_with_what_it_was_made_from(runs, page):
    text = Elements(page).text
    for run in runs.plan.runs:
        assert page.count(f'<tr id="run-{run}">') == 1
        assert f"twf run small {run}" in text
        assert f"logs/small/runs/{run}.log" in text
    assert '"lambda_fp_replay": 0.1' in text  # of a missing run, from the plan
    assert "method_hash: " in text


def test_every_link_leads_to_one_place_in_the_page(page):
    elements = Elements(page)
    places = elements.values("id")
    links = [link[1:] for link in elements.values("href") if link.startswith("#")]
    assert {
        "run-split-cifar10.er.500.s1",
        "cell-main.split-cifar10.er.500.class-il",
        "table-main.split-cifar10",
    } <= set(links)
    for link in links:
        assert places.count(link) == 1, link


def test_sentences_count_the_verdicts():
    names = ["equivalent"] * 3 + ["lower", "undecided"] + ["not run"] * 4
    rows = [{"verdict": name, "faa_std": 1.0} for name in names]
    measured, agree, differ, undecided, seeds, _ = summary.agreement(rows, [])
    assert "9 numbers" in measured and "5 have been measured" in measured
    assert agree.startswith("3 agree")
    assert "higher in 0 and lower in 1" in differ
    assert undecided.startswith("1 are undecided")
    assert "1.00 points" in seeds and "with 13 seeds" in seeds
    assert "None of the 4" in summary.agreement(rows[-4:], [])[0]


def test_data_inside_the_page_are_the_studys(runs, page):
    files = files_in(page)
    assert {"small-cells.csv", "small-comparison.csv", "small-gains.csv"} <= set(files)
    frame = pd.read_csv(io.BytesIO(files["small-runs.csv"]))
    assert list(frame["run"]) == list(runs.plan.runs)
    assert frame["status"].value_counts().to_dict() == {"finished": 11, "missing": 4, "diverged": 1}
    assert (frame.loc[frame["status"] == "finished", "faa_class_il"] == 80.0).all()
    name = "accuracy.main.split-cifar10"
    assert files[f"{name}.csv"] == figure_file("small", name, "csv").read_bytes()


def test_curve_goes_over_all_epochs():
    assert report_runs.curve([1.0]) is None
    curve = report_runs.curve([2.0, 1.0, float("nan"), 0.0, 1.0])
    assert curve.points == "0,0 60,24 180,48 240,24"  # from the top left; nan is left out
    assert (curve.epochs, curve.first, curve.highest) == (5, "2", "2")
    points = report_runs.curve([1.0 / (1 + i) for i in range(1000)]).points.split()
    assert len(points) == report_runs.POINTS
    assert (points[0], points[-1][:4]) == ("0,0", "240,")


def test_losses_are_those_of_each_run(make_plan, recorded):
    plan = make_plan([0], methods=["er"])
    losses = {run: [float(i), 2.0 + i] if i else [] for i, run in enumerate(plan.runs)}
    epoch = {"phase": 0, "epoch": 0, "seconds": 1.0, "terms": {}}
    histories = {run: [epoch | {"loss": loss} for loss in of_run] for run, of_run in losses.items()}
    runs = recorded(plan, {run: {"history": history} for run, history in histories.items()})
    assert record.read_losses(plan.study) == losses
    assert '<polyline points="0,32 240,0"' in make_report(runs)


def test_each_table_has_its_figures_of_the_methods_that_ran(page):
    charts = re.findall(r"<figure>.*?</figure>", page, flags=re.DOTALL)
    assert len(charts) == 1  # as `one_kind_of_figure` has it
    assert "DER++" in charts[0]
    assert "TwF" not in charts[0]  # no finished run
    identifiers = Elements("".join(charts)).values("id")
    assert not [name for name in identifiers if re.fullmatch(r"(figure|axes|patch)_\d+", name)]


def test_same_records_give_the_same_bytes(runs, page):
    assert make_report(runs) == page


def saying(plan: Plan, said: Iterable[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Records of the first runs of a plan, by what the provenance of each says."""
    base = {"code": {"version": "0.1.0", "commit": "abc1234"}, "versions": {}}
    told = zip(plan.runs, said, strict=False)
    return {run: {"provenance": json.dumps(base | of_run)} for run, of_run in told}


def test_records_of_different_code_are_named(make_plan, recorded):
    plan = make_plan([0, 1], methods=["er", "derpp"])
    hashes = [f"seed {r.seed}'s" if r.method == "er" else "one" for r in plan.runs.values()]
    code = {"version": "0.1.0", "commit": "abc1234"}
    records = saying(plan, ({"code": code | {"method_hash": version}} for version in hashes))
    assert summary.facts(recorded(plan, records))["Code differs within"] == "ER"


def test_many_commits_are_counted_and_listed_under_provenance(make_plan, recorded):
    plan = make_plan([0, 1, 2], methods=["er"])
    commits = ["abc1234", "def5678", "abc1234"]
    records = ({"code": {"version": "0.1.0", "commit": commit}} for commit in commits)
    runs = recorded(plan, saying(plan, records))
    assert summary.facts(runs)["twf"] == "0.1.0, at 2 commits"
    listed = {row["Value"]: row["Runs"] for row in summary.provenance(runs) if row["Of"] == "Code"}
    assert listed == {"commit abc1234": "2", "commit def5678": "1"}


def test_ways_to_execute_a_step_are_named(make_plan, recorded):
    plan = make_plan([0], methods=["er"])
    runs = recorded(plan, saying(plan, ({"execution": way} for way in ("plain", "compiled"))))
    assert summary.facts(runs)["Execution"] == "compiled; plain"
    counts = {
        row["Value"]: row["Runs"] for row in summary.provenance(runs) if row["Of"] == "Execution"
    }
    assert counts == {"compiled": "1", "plain": "1"}


def test_precisions_are_named_and_a_cpu_has_no_tf32(make_plan, recorded):
    plan = make_plan([0, 1], methods=["er"])
    on_gpu = {"versions": {"cuda": "13.0"}}
    said = [{"precision": name} for name in ("bf16", "tf32", "tf32", "fp32")]
    runs = recorded(plan, saying(plan, [said[0], said[1] | on_gpu, *said[2:]]))
    assert summary.facts(runs)["Precision"] == "bf16; fp32; tf32"


def test_a_run_that_serves_both_protocols_is_unfinished_once(make_plan, recorded):
    plan = make_plan([0, 1, 2], methods=["joint", "er"])
    per_seed = len(plan.runs) // 3
    runs = recorded(plan, {name: 80.0 for name, run in plan.runs.items() if run.seed == 0})
    (texts,) = summary.unfinished(runs).values()
    assert (texts["Planned"], texts["Finished"]) == (str(3 * per_seed), str(per_seed))
    assert 3 * per_seed < len(plan.tables["main.split-cifar10"].cells) * 3


def test_nothing_finished_still_makes_a_report(make_plan, collect):
    page = make_report(collect(make_plan([0])))
    assert "8 planned: 8 missing" in page
    assert "<figure" not in page
    assert "<svg" not in page


def test_what_has_not_been_made_is_named_with_its_command(runs):
    text = Elements(make_report(runs)).text
    for command in ("twf figures small", "twf describe small"):
        assert command in text
    figures.write(runs.plan)
    text = Elements(make_report(runs)).text
    assert "twf describe small" in text
    assert "twf figures small" not in text


def test_a_figure_that_is_listed_and_not_there_is_named(runs):
    figures.write(runs.plan)
    figure_file("small", "accuracy.main.split-cifar10", "svg").unlink()
    with pytest.raises(UserError, match="accuracy.main.split-cifar10.svg"):
        make_report(runs)


def test_figures_too_large_for_the_page_are_named(runs, monkeypatch):
    figures.write(runs.plan)
    monkeypatch.setattr(report, "PAGE_LIMIT", 100)
    page = make_report(runs)
    assert "results/small/figures/accuracy.main.split-cifar10.svg" in Elements(page).text
    assert "<svg" not in page


def test_what_a_reader_must_know_of_a_studys_numbers_is_beside_them(make_plan, recorded):
    plan = make_plan([0], methods=["er"]).model_copy(update={"note": "Toy data."})
    runs = recorded(plan)
    page = make_report(runs)
    assert page.index("Toy data.") < page.index('id="summary"')
    assert tables.FORGETTING["published"] in Elements(page).text
    assert tables.FORGETTING["paper"] in Elements(make_report(runs, F8="paper")).text
    (table,) = plan.tables.values()
    tables.write(runs, table)
    for ending in ("md", "tex"):
        assert "Toy data." in table_file(plan.study, table.name, ending).read_text()
    statement.write(reading.load(PARAMS), runs)
    assert "**Toy data.**" in statement_file(plan.study).read_text()
