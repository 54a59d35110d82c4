"""Simulated error rates of verdicts: few samples here, those of docs/results.md with many."""

from __future__ import annotations

import pytest
from benchmarks import verdicts
from project import PROJECT

from twf.results import show


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


def test_the_page_says_how_often_claims_are_found_to_hold(simulated):
    found = {(row["Claim"], row["Seeds"]): float(row["2: holds"]) for row in simulated}
    for name, shares in {"gain-class-il": (84, 100, 100), "first-class-il": (0, 0, 57)}.items():
        for seeds, share in zip(verdicts.SEEDS, shares, strict=True):
            assert found[f"`{name}`", str(seeds)] == pytest.approx(share, abs=4)


def test_the_page_has_the_table_of_seeds():
    page = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
    assert show.markdown_table(verdicts.numbers()).strip() in page
