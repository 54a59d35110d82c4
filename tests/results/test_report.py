"""The report: what it says, what it escapes, that it needs no other file."""

import csv
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from twf.files import PARAMS, checkpoint_file, report_file, runs_page, table_file
from twf.results import figures, provenance, report, tables
from twf.results.frame import Results
from twf.results.paper.claims import load
from twf.results.printed import PLACE
from twf.study import reading
from twf.study.methods import SWITCHES

HEADINGS = {"h1", "h2", "h3", "h4"}
HOSTILE = (
    """=HYPERLINK("https://x")</script><script>alert(1)</script>"><img src=x onerror=alert(2)>"""
    """ `tick` | pipe [link](javascript:alert(3)) **bold** .. raw:: html $x$ --> &"""
)


def made(results: Results, **switches: str) -> str:
    """The report of what is there, with some switches changed; the page."""
    params = reading.load(PARAMS)
    params = params.model_copy(update={"fidelity": params.fidelity | switches})
    report.write_all(params, results)
    return report_file("small").read_text()


def section(title: str, results: Results) -> Any:
    """The rows of a section of the provenance."""
    sections = provenance.sections(reading.load(PARAMS), results)
    return next(each.rows for each in sections if each.title == title)


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


class Elements(HTMLParser):
    """The names and attributes of a page's elements, and its text."""

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

    def values(self, name: str) -> list[str]:
        """All values of an attribute."""
        return [value or "" for attribute, value in self.attributes if attribute == name]


@pytest.fixture
def page(results) -> str:
    """The report of these runs, with figures."""
    return made(results)


def test_the_page_begins_with_its_message_and_says_what_the_records_do(page):
    """Joint, Finetune, and three methods with two buffers: 8 runs a seed, of half an hour each."""
    text = Elements(page).text
    first = "11 of 16 planned runs have finished: 5 methods, 2 seeds; 1 diverged; 4 missing."
    assert text.index(first) < text.index("has 80.00 % final average accuracy")
    assert page.index("<figure") < page.index("<nav")
    for said in (
        "6.00 hours on cpu",
        *("twf 0.1.0", "commit abc1234", "2.13.0"),
        *("80.00 ± 0.00 (0.00)", "80.00 to 80.00, n=2", "n=1/2, 1 diverged", "paper 83.65 (11.59)"),
        # 5 methods, 3 of them with 2 buffers, under 2 protocols: TwF's 4 cells are missing
        "Of 12 numbers of the paper that were measured at its own scale",
        "docs/fidelity.md",
    ):
        assert said in text, said
    assert "Runs differ in" not in text
    assert [claim.name for claim in load() if claim.statement not in text] == []
    levels = [int(name[1]) for name in Elements(page).names if name in HEADINGS]
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


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
    page = made(recorded(plan, {run: said | {"status": state} for run, state in states.items()}))
    runs = runs_page("small").read_text()
    for text in (page, runs):
        elements = Elements(text)
        assert not {"script", "img", "iframe", "object"} & set(elements.names)
        assert HOSTILE not in text
        assert not [name for name, _ in elements.attributes if name.startswith("on")]
        assert not [link for link in elements.values("href") if link.startswith("javascript")]
    shown = Elements(page).text + Elements(runs).text
    # a title, a reason, a parameter
    for text in (f"Study {HOSTILE}", f"Experiment {HOSTILE}", f"loss is nan {HOSTILE}"):
        assert text in shown
    assert json.dumps(HOSTILE) in shown
    folder = report_file(plan.study).parent
    for path in (*folder.rglob("*.md"), *folder.rglob("*.svg")):
        text = path.read_text()
        assert HOSTILE not in text, path
        assert "<script" not in text.replace("\\<", ""), path
    for path in folder.rglob("*.csv"):
        with path.open(newline="") as file:
            assert len({len(row) for row in csv.reader(file)}) == 1, path


def test_the_report_needs_no_other_file_and_no_script(page):
    elements = Elements(page)
    (policy,) = [text for text in elements.values("content") if "default-src" in text]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'" and "script-src" not in rules
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert not {"link", "img", "iframe", "object", "script"} & set(elements.names)
    allowed = ("#", "data:text/csv;")
    for name in ("src", "href", "xlink:href", "action"):
        for value in elements.values(name):
            assert value.startswith(allowed) or value == "runs.html", value
    assert "@import" not in page and not re.search(r"url\((?!#)", page)
    places = elements.values("id")
    for link in elements.values("href"):
        if link.startswith("#"):
            assert places.count(link[1:]) == 1, link


def test_every_run_is_listed_with_what_it_was_made_from(results, page):
    runs = runs_page("small").read_text()
    text = Elements(runs).text
    for run in results.plan.runs:
        assert runs.count(f"<summary>{run}</summary>") == 1
        assert f"twf run small {run}" in text
        assert f"logs/small/runs/{run}.log" in text
    assert '"lambda_fp_replay": 0.1' in text  # of a missing run, from the plan
    assert '"method_hash": ' in text


def test_nothing_finished_still_makes_a_report(make_plan, collect):
    page = made(collect(make_plan([0])))
    assert "0 of 8 planned runs have finished" in page and "8 missing" in page
    assert "None of the numbers that the paper prints has been measured yet." in page
    assert "<figure" not in page and "<svg" not in page


def test_of_a_study_reduced_in_part_the_other_numbers_are_counted():
    verdicts = ["reduced", "higher", "equivalent", "not run"]
    rows = {name: [str(i) for i in range(4)] for name in PLACE}
    compared = pd.DataFrame({"verdict": verdicts, "quantity": "faa", "paper": 1.0} | rows)
    said = report.agreement(compared, pd.DataFrame({"verdict": []}))
    assert said[0].startswith("Of 2 numbers of the paper") and " 1 agree" in said[0]
    assert "1 were measured at reduced scale" in said[0]


def test_seeds_of_other_networks_are_said(make_plan, recorded):
    plan = make_plan([0, 1], methods=["er"], buffers=[500])
    was = recorded(plan).runs["provenance"].iloc[0]
    others = {
        run: {"provenance": json.dumps(was | {"inputs": {"checkpoint_sha256": sha}})}
        for run, sha in zip(plan.runs, ("aa", "bb"), strict=True)
    }
    name = "Runs differ in"
    assert provenance.facts(recorded(plan, others))[name] == (
        "split-cifar10 from cifar100, checkpoint sha256"
    )
    assert name not in provenance.facts(recorded(plan))


def test_what_a_reader_must_know_of_a_studys_numbers_is_beside_them(make_plan, recorded):
    plan = make_plan([0], methods=["er"]).model_copy(update={"note": "Toy data."})
    results = recorded(plan)
    page = made(results)
    assert page.index("Toy data.") < page.index("<nav")
    assert tables.FORGETTING["published"] in Elements(page).text
    assert tables.FORGETTING["paper"] in Elements(made(results, F8="paper")).text
    assert "Toy data." in table_file(plan.study, "main.split-cifar10", "md").read_text()


# What the numbers rest on


def test_each_switch_says_what_the_study_follows(make_plan):
    variants = {
        "as-set": {"title": "as set"},
        "f1": {"title": "F1", "methods": ["twf"], "fidelity": {"F1": "paper"}},
    }
    plan = make_plan([0], methods=["er", "twf"], buffers=[500], variants=variants)
    rows = {row[""]: row for row in provenance.deviations(reading.load(PARAMS), plan)}
    assert rows.keys() == SWITCHES.keys()
    assert (rows["F1"]["As in"], rows["F1"]["Otherwise in"]) == ("the published code", "main.f1")
    assert rows["F2"]["Otherwise in"] == "—"


def test_networks_speak_for_themselves_or_are_said_to_be_missing(make_plan, collect):
    results = collect(make_plan([0], methods=["er"], buffers=[500]))
    path = checkpoint_file("cifar100")
    (row,) = section("Pretrained networks", results)
    assert row["SHA-256"] == f"no {path}" and row["Recipe"] == "not recorded"
    path.parent.mkdir()
    about = {"test_accuracy": 77.25, "seconds": 7200.0, "pretraining": {"epochs": 200}}
    metadata = {"about": json.dumps(about | {"weights": "mine.pth"})}
    save_file({"classifier.weight": np.zeros((100, 4), np.float32)}, path, metadata=metadata)
    (row,) = section("Pretrained networks", results)
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    assert list(row.values()) == ["cifar100", "77.25 %", "mine.pth epochs=200", "2.000", sha]
