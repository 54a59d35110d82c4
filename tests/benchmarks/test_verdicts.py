"""Simulated error rates of verdicts: few samples here, those of docs/results.md with many."""

from __future__ import annotations

import contextlib

import pytest
from benchmarks import verdicts
from project import PROJECT

from twf.results import show


@pytest.fixture(scope="module")
def simulated() -> list[dict[str, str]]:
    """The table of claims, of few samples."""
    with contextlib.chdir(PROJECT):
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
    found = {(row["Claim"], row["Seeds"]): row for row in simulated}
    for name, seeds, effect, share in (
        ("gain-class-il", 3, 1, 79),
        ("first-class-il", 5, 2, 1),
        ("first-class-il", 10, 2, 74),
    ):
        row = found[f"`{name}`", str(seeds)]
        assert float(row[f"{effect}: holds"]) == pytest.approx(share, abs=4)


def test_intervals_by_the_rule_hold_the_true_difference_as_often_as_they_say(monkeypatch):
    """And those with a residual pooled over unequal variances do not: why it is not the rule."""
    monkeypatch.chdir(PROJECT)
    rows = verdicts.intervals(samples=4000)
    said = [text for row in rows for name, text in row.items() if name.startswith("the rule")]
    shares = [float(share) for text in said for share in text.split(" to ")]
    assert min(shares) > 93 and max(shares) < 97.5
    pooled = [row["pooled, 3 seeds"].split(" to ")[0] for row in rows if row["Of"] == "variants"]
    assert min(map(float, pooled)) < 80


def test_the_page_has_the_table_of_seeds():
    page = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
    assert show.markdown_table(verdicts.numbers()).strip() in page
