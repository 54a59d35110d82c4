"""Text is UTF-8 whatever the locale."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml
from project import PROJECT

from twf import files

SOURCES = [path for folder in ("src", "benchmarks") for path in (PROJECT / folder).rglob("*.py")]
NOT_FILES = ("Image", "gzip", "os", "tarfile", "zipfile")  # whose `open` is of something else


def by_locale(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls that read, write or decode text, and leave it to the locale how."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or any(k.arg == "encoding" for k in call.keywords):
            continue
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        owner = of.id if isinstance(of, ast.Name) else ""
        modes = [a.value for a in ast.walk(call) if isinstance(a, ast.Constant)]
        binary = any(isinstance(mode, str) and mode.strip("rwax+") == "b" for mode in modes)
        if (
            name in ("read_text", "write_text")
            or (name == "open" and owner not in NOT_FILES and not binary)
            or any(k.arg in ("text", "universal_newlines") for k in call.keywords)
        ):
            yield call


def test_no_text_is_read_or_written_by_the_locale() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert not [
        f"{path}:{call.lineno}: {ast.unparse(call)}"
        for path, tree in trees.items()
        for call in by_locale(tree)
    ]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("path.read_text()", True),
        ("path.write_text(x)", True),
        ("path.open('w')", True),
        ("open(path)", True),
        ("subprocess.run(words, text=True)", True),
        ("path.read_text(encoding='utf-8')", False),
        ("path.open('rb')", False),
        ("Image.open(path)", False),
    ],
)
def test_that_test_finds_what_it_is_to_find(code: str, found: bool) -> None:
    assert bool(list(by_locale(ast.parse(code)))) == found


COMMANDS = """
import sys
from twf import cli
for words in sys.argv[1:]:
    sys.argv = ["twf", *words.split()]
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, words
"""


@pytest.mark.slow
def test_a_command_in_a_locale_of_ascii_writes_utf_8_and_says_what_it_can(tiny_inputs) -> None:
    """The signs of a title are in the table; where the terminal has none, it shows others."""
    files.PRINTED.parent.mkdir(exist_ok=True)
    shutil.copy2(PROJECT / files.PRINTED, files.PRINTED)
    values = yaml.safe_load(files.PARAMS.read_text(encoding="utf-8"))
    values["studies"]["tiny"]["experiments"]["main"] |= {"title": "É → λ", "methods": ["finetune"]}
    files.PARAMS.write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
    words = ("run tiny split-target.finetune.s0", "collect tiny", "report tiny", "plan tiny")
    ascii_alone = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *words],
        env=os.environ | ascii_alone,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    text = files.table_file("tiny", "main.split-target", "md").read_text(encoding="utf-8")
    assert "É → λ" in text
