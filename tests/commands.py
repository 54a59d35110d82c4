"""The `twf` command in this process, and what it says."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from twf import cli, files


class Said(NamedTuple):
    code: int
    out: str
    err: str


Twf = Callable[[str], Said]


@pytest.fixture
def twf(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Twf:
    """`twf(words)` calls the command in this process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the command would leave its own behind
    monkeypatch.setenv("COLUMNS", "200")

    def call(words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["twf", *words.split()])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as left:
            code = int(left.code or 0)
        return Said(code, *capsys.readouterr())

    return call


def succeed(twf: Twf, *calls: str) -> None:
    for words in calls:
        said = twf(words)
        assert said.code == 0, (words, said)


def mistake(said: Said) -> str:
    """The message of a user's mistake, which is all that is said."""
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    assert said.out == ""
    return said.err


def publish_nothing() -> None:
    """The paper's numbers, none of which are of the miniature."""
    files.PRINTED.parent.mkdir(exist_ok=True)
    header = "table,benchmark,method,variant,protocol,buffer_size,final_average_accuracy"
    files.PRINTED.write_text(f"{header},final_forgetting\n")
