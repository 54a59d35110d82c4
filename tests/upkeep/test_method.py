"""`twf new method`, in copies of the project."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from miniature import ended, start
from support import PROJECT

from twf.errors import UserError
from twf.study import reading
from twf.upkeep import method


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project but for its results; the test is in it."""
    listed = subprocess.check_output(["git", "ls-files", ":!results"], cwd=PROJECT, text=True)
    for name in listed.splitlines():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, tmp_path / name, follow_symlinks=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> str:
    """Run a module with the code of the working folder."""
    source = os.path.abspath("src")
    status, said = ended(start(Path(), sys.executable, "-m", *words, PYTHONPATH=source))
    assert status == 0, said
    return said


@pytest.mark.slow
@pytest.mark.parametrize("like", ["er", "derpp-ewc"])
def test_a_copy_of_any_method_is_a_method_at_once(copy, like):
    """It has values wherever the other has, its tests pass, and comments of params.yaml stay."""
    before = (copy / "params.yaml").read_text().replace("\n  demo:\n", "\n  demo:\n\n  # mine\n")
    (copy / "params.yaml").write_text(before)
    call("twf", "new", "method", "mine-too", "--like", like, "--title", "Mine, too")
    after = (copy / "params.yaml").read_text()
    assert set(before.splitlines()) <= set(after.splitlines())
    for benchmark in reading.plain_values(after, copy)["benchmarks"].values():
        assert benchmark["methods"].get("mine-too") == benchmark["methods"].get(like)
    call("pytest", "-q", "-p", "no:cacheprovider", "-k", "mine-too", "tests/jobs/test_run.py")
    call("ruff", "check", "src")
    call("ruff", "format", "--check", "src")
    call("mypy", "src/twf/learning/methods/mine_too.py", "src/twf/study/methods.py")


REFUSED = {"er": "er.py is there already", "er_mine": "'er_mine' cannot be a method's name"}
REFUSED |= {"none": "'none' cannot be a method's name"}
REFUSED["search"] = "an experiment search already"
REFUSED["long-" * 8 + "a"] = "at most 40 small letters"


def test_a_refusal_writes_nothing(copy):
    def contents() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in [*(copy / "src").rglob("*.py"), copy / "params.yaml"]}

    before = contents()
    for name, message in REFUSED.items():
        with pytest.raises(UserError, match=message):
            method.new(name, "er")
    with pytest.raises(UserError, match=r"no method 'dreams' in .*; there is joint, "):
        method.new("mine", "dreams")
    assert contents() == before


@pytest.mark.parametrize(
    "text",
    [
        "benchmarks: {a: {methods: {joint: {lr: 1}, er: {lr: 1}}}}\nstudies: {}\n",
        "x: &x {er: {lr: 1}}\nbenchmarks:\n  a:\n    methods: {<<: *x}\nstudies: {}\n",
    ],
)
def test_entries_without_lines_of_their_own_are_refused(text):
    with pytest.raises(UserError, match=r"params\.yaml: give er lines of its own"):
        method._with_values(text, "mine", "er", "Mine")
