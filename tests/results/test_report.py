"""The report and the statement: what they say, what they escape, that they need no other file."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hostile import Elements
from safetensors.numpy import save_file

from twf.cli.results import write_compared
from twf.data import registry
from twf.errors import UserError
from twf.files import (
    PARAMS,
    checkpoint_file,
    figure_file,
    figure_index,
    report_file,
    statement_file,
    table_file,
)
from twf.results import cells, figures, provenance, report, search
from twf.results.frame import Results
from twf.results.paper.claims import CLAIMS
from twf.study import Plan, expand, reading
from twf.study.choices import CHOICES
from twf.study.params import Params
from twf.study.switches import SWITCHES

HEADINGS = {"h1", "h2", "h3", "h4"}
HOSTILE = (
    """=HYPERLINK("https://x")</script><script>alert(1)</script>"><img src=x onerror=alert(2)>"""
    """ `tick` | pipe [link](javascript:alert(3)) **bold** .. raw:: html $x$ --> &"""
)


def make_report(params: Params, results: Results) -> str:
    """Make tables, comparison and report of what is there; the page."""
    cells.write(results, results.plan.tables.values())
    if results.plan.search:
        search.write(results)
    write_compared(params, results)
    report.write(params, results)
    return report_file("small").read_text()


def made(results: Results, **switches: str) -> str:
    """The report of what is there, with some switches changed; the page."""
    params = reading.load(PARAMS)
    return make_report(params.model_copy(update={"fidelity": params.fidelity | switches}), results)


def statement(results: Results) -> str:
    """The reproducibility statement of what is there."""
    provenance.write(reading.load(PARAMS), results, ["a sentence"])
    return statement_file("small").read_text()


def section(title: str, results: Results) -> Any:
    """The rows of a section of the statement."""
    sections = provenance.sections(reading.load(PARAMS), results)
    return next(of.rows for of in sections if of.title == title)


def files_in(page: str) -> dict[str, bytes]:
    """The CSV files inside a page, by name."""
    found = re.findall(r'download="([^"]+)" href="data:text/csv;[^,]*,([^"]+)"', page)
    return {name: base64.b64decode(data) for name, data in found}


@pytest.fixture(autouse=True)
def one_kind_of_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes time: one figure for each table is enough here."""
    monkeypatch.setattr(figures.kinds, "KINDS", {"accuracy": figures.KINDS["accuracy"]})


@pytest.fixture
def results(make_plan, recorded) -> Results:
    """Two seeds: ER's second with 500 diverged, all of TwF's missing, the rest finished."""
    plan = make_plan([0, 1])
    finished = {name: 80.0 for name, run in plan.runs.items() if run.method != "twf"}
    diverged = {"status": "diverged", "reason": "loss is nan"}
    return recorded(plan, finished | {"split-cifar10.er.500.s1": diverged})


@pytest.fixture
def page(results) -> str:
    """The report of these runs, with figures."""
    figures.write(results)
    return made(results)


def test_the_page_says_what_the_records_do(page):
    """Joint, Finetune, and three methods with two buffers: 8 runs a seed, of half an hour each."""
    text = Elements(page).text
    of_performance = sum(claim.group == "performance" for claim in CLAIMS)
    for said in (
        "16 planned: 11 finished, 1 diverged, 4 missing",
        "6.00 hours on cpu",
        *("twf 0.1.0", "commit abc1234", "2.13.0"),
        *("80.00 ± 0.00 (0.00)", "n=1/2, 1 diverged", "paper 83.65 (11.59)"),
        # 5 methods, 3 of them with 2 buffers, under 2 protocols: TwF's 4 cells are missing
        "Of the 144 numbers that the paper prints, 12 have been measured.",
        f"The paper's claims on how well TwF does ({of_performance}):",
        "snakemake --cores all results/small/runs/split-cifar10.er.500.s0.parquet",
        "optimizer, rate, batch and augmentation are ours",
    ):
        assert said in text, said
    assert "Code differs within" not in text
    assert [claim.name for claim in CLAIMS if claim.statement not in text] == []
    levels = [int(name[1]) for name in Elements(page).names if name in HEADINGS]
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    order = ("main-section", "claims", "comparison", "tables", "runs")
    places = [page.index(f'id="{name}"') for name in order]
    assert places == sorted(places)


def test_what_is_said_of_all_tables_is_said_once(make_plan, recorded):
    benchmarks = ["split-cifar10", "split-cifar100"]  # from two sources
    plan = make_plan([0], methods=["er"], buffers=[500], benchmarks=benchmarks)
    text = Elements(made(recorded(plan))).text
    assert text.count("Bold: the highest accuracy") == 1
    assert text.count("final forgetting (FF) in parentheses, in per cent (one seed") == 1
    assert "Pretrained on cifar100." in text and "Pretrained on tiny-imagenet." in text
    assert "†: its runs differ" not in text


def test_claims_are_in_the_order_of_their_verdicts_and_folded_where_not_run(make_plan, recorded):
    cl = {"title": "CL", "hyperparameters": {"lambda_fp": 0.0, "lambda_diversity": 0.0}}
    two = {"cl-fp": {"title": "CL + FP"}, "cl": cl}
    plan = make_plan([0, 1], methods=["twf"], variants=two)
    page = made(recorded(plan))
    rest = page.partition('id="claims"')[2]
    rest = rest.partition("comparison-section")[0]
    verdicts = re.findall(
        r'<tr>\s*<td[^>]*><span class="verdict [a-z-]+">([^<]+)</span></td>', rest
    )
    assert len(verdicts) == len(CLAIMS)
    assert verdicts == sorted(verdicts, key=report.SHOWN.index)
    shown, _, folded = rest.partition("<details>")
    not_run = verdicts.count("not run")
    assert 0 < not_run < len(CLAIMS)
    assert ("not run" in shown, folded.count(">not run<")) == (False, not_run)


def test_hostile_text_is_escaped(make_plan, recorded):
    plan = make_plan([0], study_title=f"Study {HOSTILE}", title=f"Experiment {HOSTILE}")
    said = {
        "reason": f"loss is nan {HOSTILE}",
        "device": HOSTILE,
        "provenance": json.dumps(
            {
                "parameters": {HOSTILE: HOSTILE},
                "code": {"version": HOSTILE, "commit": HOSTILE},
                "versions": {"torch": HOSTILE},
            }
        ),
    }
    states = {run: "finished" if "joint" in run else "diverged" for run in plan.runs}
    results = recorded(plan, {run: said | {"status": state} for run, state in states.items()})
    figures.write(results)
    page = made(results)
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
    for path in folder.rglob("*.svg"):
        drawn = "".join(ET.fromstring(path.read_text()).itertext())
        assert "</script><script>alert(1)" in drawn and "html $x$ -->" in drawn
    for path in folder.rglob("*.csv"):
        with path.open(newline="") as file:
            assert len({len(row) for row in csv.reader(file)}) == 1, path


def test_policy_allows_the_reports_own_script_alone(page):
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [text for text in Elements(page).values("content") if "default-src" in text]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["img-src"] == "data:"
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_report_needs_no_other_file_and_its_links_lead_to_one_place_each(page):
    elements = Elements(page)
    assert not {"link", "img", "iframe", "object"} & set(elements.names)
    for name in ("src", "href", "xlink:href", "action"):
        for value in elements.values(name):
            assert value.startswith(("#", "data:text/csv;", "data:text/markdown;")), value
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    places = elements.values("id")
    links = [link[1:] for link in elements.values("href") if link.startswith("#")]
    assert "run-split-cifar10.er.500.s0" in links  # of a cell, its first run
    assert "95 % interval: 80.00 to 80.00" in elements.values("title")
    for link in links:
        assert places.count(link) == 1, link


def test_every_run_is_listed_with_what_it_was_made_from(results, page):
    text = Elements(page).text
    for run in results.plan.runs:
        assert page.count(f'<details id="run-{run}">') == 1
        assert f"twf run small {run}" in text
        assert f"logs/small/runs/{run}.log" in text
    assert '"lambda_fp_replay": 0.1' in text  # of a missing run, from the plan
    assert "method_hash: " in text


def test_each_table_has_its_figures_of_the_methods_that_ran(page):
    charts = re.findall(r"<figure>.*?</figure>", page, flags=re.DOTALL)
    assert len(charts) == 1  # as `one_kind_of_figure` has it
    assert "DER++" in charts[0]
    assert "TwF" not in charts[0]  # no finished run
    identifiers = Elements("".join(charts)).values("id")
    assert not [name for name in identifiers if re.fullmatch(r"(figure|axes|patch)_\d+", name)]


def test_same_records_give_the_same_bytes(results, page):
    said = statement_file("small").read_bytes()
    assert made(results) == page
    assert statement_file("small").read_bytes() == said


def test_nothing_finished_still_makes_a_report_that_names_what_is_not_made(make_plan, collect):
    page = made(collect(make_plan([0])))
    assert "8 planned: 8 missing" in page
    assert "None of the 144 numbers that the paper prints has been measured yet." in page
    assert "<figure" not in page
    assert "<svg" not in page
    assert "twf figures small" in page


def test_what_was_not_made_was_removed_or_is_of_other_records_is_named(results, recorded):
    params, plan = reading.load(PARAMS), results.plan
    name, figure = "main.split-cifar10", "accuracy.main.split-cifar10"
    path = table_file("small", name, "parquet")

    def refused(said: str, runs: Results = results) -> None:
        with pytest.raises(UserError, match=said):
            report.write(params, runs)

    refused(f"{name}.parquet: `twf table small` makes it")
    cells.write(results, plan.tables.values())
    refused("comparison.parquet: `twf compare small` makes it")
    figures.write(results)
    make_report(params, results)
    figure_file("small", figure, "svg").unlink()
    refused(f"no .*{figure}.svg: `twf report small --partial`")
    figure_index("small").unlink()
    table_file("small", name, "csv").unlink()
    refused(f"no .*{name}.csv: `twf report small --partial`")
    later = recorded(plan)  # TwF's runs have finished meanwhile
    refused(f"{name}.* other records.* `twf table small`", later)
    cells.write(later, plan.tables.values())
    refused("comparison.parquet is of other records.*`twf compare", later)
    pq.write_table(pq.read_table(path).rename_columns({"printed_faa": "published_faa"}), path)
    refused("another version of this software: `twf table small`", later)


def test_a_cell_that_the_plan_has_no_more_is_not_shown(make_plan, recorded):
    results = recorded(make_plan([0], methods=["er", "derpp"]))
    made(results)
    fewer = recorded(make_plan([0], methods=["derpp"]))
    with pytest.raises(UserError, match="other records or tables than now: `twf table small`"):
        report.write(reading.load(PARAMS), fewer)


def test_differences_of_another_baseline_are_not_shown(make_plan, recorded):
    """The records and tables are the same."""
    made(recorded(make_plan([0], methods=["er", "derpp"], baseline="derpp")))
    other = recorded(make_plan([0], methods=["er", "derpp"], baseline="er"))
    with pytest.raises(UserError, match="other records or tables than now: `twf compare small`"):
        report.write(reading.load(PARAMS), other)


def test_of_a_study_reduced_in_part_the_other_numbers_are_counted():
    verdicts = ["reduced", "higher", "equivalent", "not run"]
    compared = pd.DataFrame({"verdict": verdicts, "faa_std": [0.1, 2.0, 2.0, None]})
    said = report.agreement(compared, pd.DataFrame({"group": [], "verdict": []}))
    assert said[0].startswith("Of the 4 numbers that the paper prints, 1 have been measured at red")
    assert said[1].endswith(" prints, 2 have been measured at its own scale.")
    assert said[2].startswith("In agreement: 1,") and "standard deviation of 2.00" in said[5]


def test_seeds_of_other_networks_are_said(make_plan, recorded):
    plan = make_plan([0, 1], methods=["er"], buffers=[500])
    was = recorded(plan).runs["provenance"].iloc[0]
    others = {
        run: {"provenance": json.dumps(was | {"inputs": {"checkpoint_sha256": sha}})}
        for run, sha in zip(plan.runs, ("aa", "bb"), strict=True)
    }
    name = "Images or pretrained networks differ within"
    assert provenance.facts(recorded(plan, others))[name] == "split-cifar10 from cifar100"
    assert name not in provenance.facts(recorded(plan))


def test_what_a_reader_must_know_of_a_studys_numbers_is_beside_them(make_plan, recorded):
    plan = make_plan([0], methods=["er"]).model_copy(update={"note": "Toy data."})
    results = recorded(plan)
    page = made(results)
    assert page.index("Toy data.") < page.index('id="summary"')
    assert cells.FORGETTING["published"] in Elements(page).text
    assert cells.FORGETTING["paper"] in Elements(made(results, F8="paper")).text
    for ending in ("md", "tex"):
        assert "Toy data." in table_file(plan.study, "main.split-cifar10", ending).read_text()
    assert "**Toy data.**" in statement_file(plan.study).read_text()


# What the numbers rest on


def said(commit: str | None = "abc1234", inputs: dict[str, str] | None = None, **more: Any) -> Any:
    """The columns of a record whose provenance says so."""
    code = {"version": "0.1.0", "commit": commit, "method_hash": more.pop("method_hash", "00ff")}
    versions = {"torch": "2.13.0"} | more.pop("versions", {})
    found = {"parameters": {}, "code": code, "inputs": inputs or {}, "versions": versions} | more
    return {"provenance": json.dumps(found)}


def records(plan: Plan, *of_runs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Records of the first runs of a plan."""
    return dict(zip(plan.runs, of_runs, strict=False))


@pytest.fixture
def plan(make_plan) -> Plan:
    """ER and TwF with two seeds, and variants that set a switch."""
    variants = {
        "as-set": {"title": "as set"},
        "f1": {"title": "F1", "methods": ["twf"], "fidelity": {"F1": "paper"}},
        "f9": {"title": "F9", "methods": ["twf"], "fidelity": {"F9": "published"}},
    }
    return make_plan([0, 1], methods=["er", "twf"], buffers=[500], variants=variants)


def test_each_switch_and_choice_says_what_the_study_does(plan, collect, make_plan):
    rows = provenance.deviations(reading.load(PARAMS), plan)
    by_subject = {row["Subject"]: row for row in rows}
    assert [row["Subject"] for row in rows][: len(SWITCHES)] == [
        switch.subject for switch in SWITCHES.values()
    ]
    first, ninth = (by_subject[SWITCHES[name].subject] for name in ("F1", "F9"))
    assert (first["Here"], first["Set by"]) == (
        SWITCHES["F1"].published,
        "F1: published; paper in main.f1",
    )
    assert (ninth["Here"], ninth["Set by"]) == (
        SWITCHES["F9"].paper,
        "F9: paper; published in main.f9",
    )
    choice = {of.subject: of for of in CHOICES}
    assert by_subject["pretraining"]["Here"] == choice["pretraining"].here
    assert "strength of the EWC anchor" not in by_subject
    other = make_plan([0], methods=["derpp-ewc"], benchmarks=["split-cifar100"])
    assert "| strength of the EWC anchor | not given |" in statement(collect(other))


def test_hyperparameters_that_a_search_has_chosen_are_said_to_be_so(collect, make_plan):
    make_plan([0], methods=["er"], buffers=[500], protocols=["class-il"])
    place = {"benchmark": "split-cifar10", "method": "er", "buffer": 500, "protocol": "class-il"}
    Path("best.yaml").write_text(json.dumps([place | {"hyperparameters": {"lr": 0.25}}]))
    study = "  small:\n    best_hyperparameters: best.yaml"
    PARAMS.write_text(PARAMS.read_text().replace("  small:", study))
    text = statement(collect(expand(reading.load(PARAMS), "small")))
    assert "| split-cifar10 | ER | 500 | lr=0.25 | search | Class-IL |" in text


def test_only_a_commit_is_to_be_checked_out(plan, recorded):
    commits = ["abc1234", "def5678+", "abc1234; rm -rf /", None]
    text = statement(recorded(plan, records(plan, *map(said, commits))))
    assert [line for line in text.splitlines() if line.startswith("git checkout")] == [
        "git checkout abc1234"
    ]
    assert "**Some records are of code that no commit has: def5678+.**" in text
    assert "**Some records are of code that no commit has.**" in text


def test_networks_speak_for_themselves_or_are_said_to_be_missing(plan, collect):
    results = collect(plan)
    assert "no checkpoints/cifar100.safetensors: twf pretrain train cifar100" in statement(results)
    path = checkpoint_file("cifar100")
    path.parent.mkdir()
    path.write_bytes(b"torn")
    row = "| cifar100 | not measured | not recorded | not recorded | not recorded | cannot be read"
    assert row in statement(results)
    about = {"test_accuracy": 77.25, "seconds": 7200.0, "pretraining": {"epochs": 200}}
    metadata = {"about": json.dumps(about | {"weights": "mine.pth"})}
    save_file({"classifier.weight": np.zeros((100, 4), np.float32)}, path, metadata=metadata)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    row = f"| cifar100 | 77.25 % | mine.pth epochs=200 | not recorded | 2.000 | {sha256} |"
    assert row in statement(results)


def test_fingerprints_are_held_to_the_official_ones(plan, recorded):
    official = registry.images_entry("cifar10").fingerprints_at(32)
    inputs = {"train_fingerprint": official["train"], "test_fingerprint": "d00d"}
    results = recorded(plan, records(plan, said(inputs=inputs)))
    row, source = section("Data", results)
    assert source["Data set"] == "cifar100"  # that the network was trained on
    assert row["Fingerprint, train"] == f"{official['train']} (official)"
    assert row["Fingerprint, test"] == f"d00d (NOT the official {official['test']})"
