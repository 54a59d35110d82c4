"""Text is UTF-8 whatever the locale."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
import yaml
from project import PROJECT

from twf import files

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
