"""`twf new method`, in copies of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from processes import environment
from project import PROJECT, kept

from twf.errors import UserError
from twf.upkeep import method


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project but for its results; the test is in it."""
    for path in kept(":!results"):
        there = tmp_path / path.relative_to(PROJECT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there, follow_symlinks=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> str:
    """Run a module with the code of the working folder."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env=environment() | {"PYTHONPATH": os.path.abspath("src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def contents(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"}


GOLDEN = "tests/learning/methods/test_golden_losses.py"
TESTS = (
    GOLDEN,
    "tests/learning/test_loop.py::test_losses_follow_the_kept_traces[twf-mine]",
    "tests/study/test_params.py::"
    "test_each_cell_has_the_hyperparameters_that_the_paper_prints_and_no_others",
    "tests/test_docs.py::test_every_method_has_a_page_with_its_hyperparameters_and_switches",
    "tests/test_docs.py::test_the_index_has_every_method_in_order",
    "tests/test_docs.py::test_relative_links_point_to_files_and_headings[docs/methods/twf-mine.md]",
    "tests/results/figures/test_figures.py::test_no_two_methods_look_alike",
    "tests/cli/test_cli.py::test_the_projects_schema_is_in_step_with_the_types",
    "tests/jobs/test_run.py::test_a_run_writes_a_record_that_reads_back[twf-mine]",
)


@pytest.mark.slow
def test_a_new_method_passes_the_tests_of_every_method_at_once(copy):
    before = (copy / "params.yaml").read_text().splitlines()
    said = call("twf", "new", "method", "twf-mine", "--like", "twf", "--title", "TwF, mine")
    assert "src/twf/learning/methods/twf_mine.py" in said
    after = (copy / "params.yaml").read_text().splitlines()
    added = [line for line in after if "twf-mine" in line]
    assert [line for line in after if line not in added] == before, "comments and all stay"
    values = yaml.safe_load((copy / "params.yaml").read_text())["benchmarks"]
    assert len(added) == len(values) == sum("twf-mine" in of["methods"] for of in values.values())
    for of in values.values():
        assert of["methods"]["twf-mine"] == of["methods"]["twf"]
    call("pytest", "-q", "-p", "no:cacheprovider", *TESTS)
    call("ruff", "check", "src", "tests")
    call("ruff", "format", "--check", "src", "tests")


@pytest.mark.slow
@pytest.mark.parametrize("like", ["joint", "derpp-ewc"])
def test_a_copy_of_any_method_is_one(copy, like):
    """Trained at miniature size, it learns as the method it is like, by its own class."""
    call("twf", "new", "method", "mine", "--like", like)
    said = call("pytest", "-q", "-p", "no:cacheprovider", GOLDEN, "-k", "mine")
    assert "1 passed" in said
    call("ruff", "format", "--check", "src", "tests")


REFUSED = [  # a name, a title, what is said
    ("er", None, "there is a method 'er'"),
    ("ER", None, "there is a method 'er'"),
    ("er_mine", None, "'er_mine' cannot be a method's name"),
    ("3er", None, "'3er' cannot be a method's name"),
    ("er-", None, "'er-' cannot be a method's name"),
    ("class", None, "'class' cannot be a method's name"),
    ("base", None, "src/twf/learning/methods/base.py is there already"),
    ("readme", None, "docs/methods/readme.md is there already"),
    ("step", None, "the code of er uses the name Step"),
    ("mine", "er", "er has the title 'ER'"),
    ("mine", "a | b", "cannot be a title"),
]


def test_what_cannot_be_is_refused_and_nothing_is_written(copy):
    before = contents(copy)
    for name, title, said in REFUSED:
        with pytest.raises(UserError, match=said):
            method.new(name, "er", title)
    with pytest.raises(UserError, match=r"no method 'dreams' in .*; there is joint, "):
        method.new("mine", "dreams")
    assert contents(copy) == before
    path = copy / "params.yaml"  # without lines of their own
    text = path.read_text()
    path.write_text(text.replace("      er: {lr: 0.01}\n", "      ? er\n      : {lr: 0.01}\n"))
    before = contents(copy)
    with pytest.raises(UserError, match=r"params\.yaml has no room below er's entries"):
        method.new("mine", "er")
    assert contents(copy) == before


@pytest.mark.parametrize("another", ["<<: *shared", "title: A, data: digits, methods: *methods"])
def test_benchmarks_that_share_their_methods_get_one_line(another):
    """By a merge, or by an anchor: what the file means for each of them has the method."""
    text = (PROJECT / "params.yaml").read_text()
    text = text.replace("  split-digits:\n", "  split-digits: &shared\n", 1)
    text = text.replace("    methods:\n", "    methods: &methods\n", 1)
    text = text.replace("\nstudies:\n", f"\n  another: {{{another}}}\n\nstudies:\n", 1)
    changed = method._with_entries(text, "mine", "er")
    found = yaml.safe_load(changed)["benchmarks"]
    values = found["split-digits"]["methods"]["er"]
    assert found["another"]["methods"]["mine"] == values
    assert changed.count("      mine:") == len(found) - 1
