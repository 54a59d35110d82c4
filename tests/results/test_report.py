"""The report: what it says, what it escapes, that it needs no other file."""

import csv
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from twf.files import checkpoint_file, report_file, runs_page, table_file
from twf.results import figures, provenance, report, tables
from twf.results.frame import Results
from twf.results.paper.claims import load
from twf.study.code import LOOP, code_hash, method_module
from twf.study.methods import SWITCHES

HOSTILE = (
    """=HYPERLINK("https://x")</script><script>alert(1)</script>"><img src=x onerror=alert(2)>"""
    """ `tick` | pipe [link](javascript:alert(3)) **bold** .. raw:: html $x$ --> &"""
)


def made(results: Results) -> str:
    """The report of what is there; the page."""
    report.write_all(results)
    return report_file("small").read_text()


def section(title: str, results: Results) -> Any:
    """The rows of a section of the provenance."""
    return next(each.rows for each in provenance.sections(results) if each.title == title)


@pytest.fixture(autouse=True)
def few_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes time: that of accuracy for each table is enough here."""
    every = figures._of_table
    monkeypatch.setattr(
        figures, "_of_table", lambda *of: [f for f in every(*of) if f[0] == "accuracy"]
    )


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
        *("abc1234", "2.13.0", "made with other code"),
        *("80.00 ± 0.00 (0.00)", "80.00 to 80.00, n=2", "n=1/2, 1 diverged", "paper 83.65 (11.59)"),
        "4 not run",  # TwF, with 2 buffers under 2 protocols
        "docs/fidelity.md",
    ):
        assert said in text, said
    assert [claim.name for claim in load() if claim.statement not in text] == []


def test_hostile_text_is_escaped(make_plan, recorded, monkeypatch):
    monkeypatch.setattr(report.record, "carried", lambda _: HOSTILE)
    plan = make_plan([0], study_title=f"Study {HOSTILE}", title=f"Experiment {HOSTILE}")
    code = {"version": HOSTILE, "commit": HOSTILE}
    made_by = {"parameters": {HOSTILE: HOSTILE}, "code": code, "versions": {"torch": HOSTILE}}
    said = {"reason": f"loss is nan {HOSTILE}", "device": HOSTILE}
    said |= {"provenance": json.dumps(made_by)}
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
    for text in (f"Study {HOSTILE}", f"Experiment {HOSTILE}", f"loss is nan {HOSTILE}"):
        assert text in shown
    assert json.dumps(HOSTILE) in shown  # a parameter
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
    for name in ("src", "href", "xlink:href", "action"):
        for value in elements.values(name):
            assert value.startswith("#") or value == "runs.html", value
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
        assert f"twf run small {run}" in text and f"logs/small/runs/{run}.log" in text
    assert '"lambda_fp_replay": 0.1' in text  # of a missing run, from the plan
    assert '"method_hash": ' in text


def test_nothing_finished_still_makes_a_report(make_plan, collect):
    page = made(collect(make_plan([0])))
    assert "0 of 8 planned runs have finished" in page and "8 missing" in page
    assert "16 not run" in page
    assert "<figure" not in page and "<svg" not in page


def test_what_the_records_rest_on_is_counted(make_plan, recorded):
    """Each value and its runs: networks that differ, a method's code that is not today's."""
    plan = make_plan([0, 1], methods=["er"], buffers=[500])
    was = recorded(plan).runs["provenance"].iloc[0]
    now = code_hash(LOOP, method_module("er"))
    made = {
        run: was
        | {"precision": "tf32", "inputs": {"network_sha256": sha}}
        | {"code": {"version": "1", "commit": None, "method_hash": code}}
        for run, sha, code in zip(plan.runs, ("aa", "bb"), ("00ff", now), strict=True)
    }
    records = {run: {"provenance": json.dumps(values)} for run, values in made.items()}
    assert [
        list(row.values()) for row in section("Code, inputs and software", recorded(plan, records))
    ] == [
        ["code of ER", "00ff (made with other code)", "1"],
        ["code of ER", now, "1"],
        ["commit", "unknown", "2"],
        ["precision", "fp32", "2"],  # a CPU has no TF32
        ["split-cifar10, network_sha256", "aa", "1"],
        ["split-cifar10, network_sha256", "bb", "1"],
        ["torch", "2.13.0", "2"],
        ["twf", "1", "2"],
    ]


def test_hyperparameters_say_where_they_are_from_and_switches_what_they_follow(make_plan, recorded):
    variants = {
        "as-set": {"title": "as set"},
        "fast": {"title": "fast", "hyperparameters": {"lr": 9.0}},
    }
    plan = make_plan([0], methods=["er", "derpp-ewc"], buffers=[500], variants=variants)
    rows = section("Hyperparameters", recorded(plan))
    from_where = {(row["Method"], row["Hyperparameters"][:4]): row["From"] for row in rows}
    assert from_where["ER", "lr=0"] == "params.yaml"
    assert from_where["ER", "lr=9"] == "variant main.fast"
    assert from_where["DER++ with EWC", "lr=9"].startswith("variant main.fast; untuned: lambda_ewc")
    assert {row["Protocol"] for row in rows if row["Method"] == "ER"} == {"Class-IL, Task-IL"}
    rows = section("Deviations", recorded(plan))
    assert [row[""] for row in rows] == list(SWITCHES)
    assert rows[0]["As in"] == "the published code"


def test_a_report_of_variants_only_says_how_the_best_of_them_does(make_plan, recorded):
    variants = {f"v{i}": {"title": f"V{i}", "hyperparameters": {"lr": i / 10}} for i in (1, 2, 3)}
    variants |= {"as-set": {"title": "as set"}}
    plan = make_plan([0, 1], methods=["twf"], buffers=[500], variants=variants)
    records: dict[str, Any] = {r: 70.0 + ("v2" in r) + 9 * ("v3" in r) for r in plan.runs}
    records["split-cifar10.twf.500.v3.s0"] = {"status": "diverged"}
    page = made(recorded(plan, records))
    assert "TwF, V2 has 71.00 % final average accuracy" in page


def test_the_message_says_what_diverged_and_takes_no_such_cell_for_the_best(make_plan, recorded):
    levels = {"er": 70.0, "derpp": 75.0, "twf": 80.0}
    plan = make_plan([0, 1, 2], methods=[*levels], buffers=[500])
    records: dict[str, Any] = {name: levels[run.method] for name, run in plan.runs.items()}
    lost = ("derpp.500.s0", "twf.500.s1")
    records |= {f"split-cifar10.{name}": {"status": "diverged"} for name in lost}
    page = made(recorded(plan, records))
    assert "without 1 that diverged" in page and "over ER, the best of the others" in page


def test_what_a_reader_must_know_of_a_studys_numbers_is_beside_them(make_plan, recorded):
    plan = make_plan([0], methods=["er"]).model_copy(update={"note": "Toy data."})
    results = recorded(plan)
    page = made(results)
    assert page.index("Toy data.") < page.index("<nav")
    assert tables.FORGETTING["published"] in Elements(page).text
    params = plan.params.model_copy(update={"fidelity": plan.params.fidelity | {"F8": "paper"}})
    results.plan = plan.model_copy(update={"params": params})
    assert tables.FORGETTING["paper"] in Elements(made(results)).text
    assert "Toy data." in table_file(plan.study, "main.split-cifar10", "md").read_text()


def test_networks_speak_for_themselves_or_are_said_to_be_missing(make_plan, collect):
    results = collect(make_plan([0], methods=["er"], buffers=[500]))
    path = checkpoint_file("cifar100")
    (row,) = section("Pretrained networks", results)
    assert row["SHA-256"] == f"no {path}" and row["Recipe"] == "not recorded"
    path.parent.mkdir()
    about = {"test_accuracy": 77.25, "pretraining": {"epochs": 200}}
    metadata = {"about": json.dumps(about | {"weights": "mine.pth"})}
    save_file({"classifier.weight": np.zeros((100, 4), np.float32)}, path, metadata=metadata)
    (row,) = section("Pretrained networks", results)
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    assert list(row.values()) == ["cifar100", "77.25", "mine.pth epochs=200", sha]
