"""Simulated error rates of verdicts: few samples here, those of docs/results.md with many."""

from __future__ import annotations

import re

import pytest
from benchmarks import verdicts
from project import PROJECT

from twf.results import output

ROWS = re.findall(r"^\| .* \|$", (PROJECT / "docs" / "results.md").read_text(), flags=re.M)


@pytest.fixture
def simulated(monkeypatch) -> list[dict[str, str]]:
    """The table of claims, of few samples."""
    monkeypatch.chdir(PROJECT)
    return verdicts.claims(samples=2000)


def test_errors_stay_below_their_level_and_power_grows_with_seeds(simulated):
    power = [float(row["2: holds"]) for row in simulated]
    for row in simulated:
        assert float(row["0: holds"]) <= 3.5  # 2.5 and twice the error of 2,000 samples
        assert float(row["0: does not"]) <= 3.5
        assert float(row["others 0: named"]) <= 3.5
    for i in range(0, len(power), len(verdicts.SEEDS)):
        assert power[i] <= power[i + 1] <= power[i + 2]


def test_the_page_has_the_table_of_claims(simulated):
    head, _, *rows = output.markdown_table(simulated).splitlines()
    at = ROWS.index(head) + 2
    for shown, found in zip(ROWS[at : at + len(rows)], rows, strict=True):
        for one, other in zip(shown.split("|")[1:-1], found.split("|")[1:-1], strict=True):
            if one.strip().startswith("`"):
                assert one == other
            else:
                assert float(one) == pytest.approx(float(other), abs=4)


def test_the_page_has_the_table_of_seeds():
    table = output.markdown_table(verdicts.numbers()).splitlines()
    at = ROWS.index(table[0])
    assert ROWS[at : at + len(table)] == table
