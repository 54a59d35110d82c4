"""The central questions: which intervals they have, and what is said of it."""

from __future__ import annotations

import pandas as pd
import pytest
from project import PROJECT
from scipy import stats

from twf.results import statistics
from twf.results.contrasts import Marks
from twf.results.paper import central
from twf.results.printed import CellKey

PLACE = CellKey("split-cifar10", "cifar100", "twf", "", 500, "class-il")
# Far from each other with the paper's stream loss alone, so the layout's variances are uneven.
WILD = {"all": [74.0, 75.0, 75.5], "cl": [74.2, 75.1, 75.2]}
WILD |= {"f6": [60.0, 80.0, 72.0], "cl-f6": [80.0, 60.0, 72.0]}
VALUES = {PLACE._replace(variant=name): dict(enumerate(of)) for name, of in WILD.items()}


def test_welchs_interval_stands_beside_a_layout_of_unequal_variances(monkeypatch):
    monkeypatch.chdir(PROJECT)
    frame = central.answers(VALUES).set_index("question")
    row = frame.loc["propagation"]
    welch = stats.ttest_ind(WILD["all"], WILD["cl"], equal_var=False).confidence_interval(0.95)
    assert row["uneven"] > central.UNEVEN and row["freedom"] == 6
    assert (row["welch_low"], row["welch_high"]) == pytest.approx(tuple(welch))
    texts = central.text_rows(frame.reset_index())
    assert "Welch's" in next(of["Interval"] for of in texts if "over" not in of["Question"])


def test_where_a_run_diverged_nothing_is_decided(monkeypatch):
    monkeypatch.chdir(PROJECT)
    values = {PLACE: dict.fromkeys(range(4), 75.0), PLACE._replace(method="derpp"): {}}
    values[PLACE._replace(method="derpp")] = {0: 60.0, 1: 60.2, 2: 60.1}
    runs = {key: [(seed, "finished", "fp32") for seed in of] for key, of in values.items()}
    (whole,) = central.answers(values, Marks(runs)).to_dict("records")
    assert (whole["said"], whole["size"]) == ("an effect", "above the paper's")
    runs[PLACE._replace(method="derpp")] += [(3, "diverged", "fp32")]
    (row,) = (frame := central.answers(values, Marks(runs))).to_dict("records")
    assert (row["n"], row["n_diverged"], row["said"], row["size"]) == (3, 1, "undecided", "")
    assert central.text_rows(frame)[0]["Seeds"] == "3, 1 diverged"


def test_a_difference_between_precisions_is_marked(monkeypatch):
    monkeypatch.chdir(PROJECT)
    values = {PLACE: {0: 75.0, 1: 75.2}, PLACE._replace(method="derpp"): {0: 60.0, 1: 60.2}}
    runs = {key: [(s, "finished", "fp32") for s in of] for key, of in values.items()}
    assert "†" not in central.text_rows(central.answers(values, Marks(runs)))[0]["Ours"]
    runs[PLACE] = [(0, "finished", "bf16"), (1, "finished", "bf16")]
    assert central.text_rows(central.answers(values, Marks(runs)))[0]["Ours"].endswith(") †")


@pytest.mark.parametrize(
    ("mean", "error", "said"),
    [
        (0.1, 0.1, "no effect"),
        (3.0, 0.1, "an effect"),
        (0.5, 0.1, "an effect, below a point"),
        (0.5, 0.6, "undecided"),
        (-3.0, 0.1, "an effect"),
    ],
)
def test_what_is_said_follows_two_intervals(mean: float, error: float, said: str):
    assert central.effect(statistics.Estimate(mean, error, 6.0)) == said


@pytest.mark.parametrize(
    ("mean", "printed", "said"),
    [
        (1.0, 7.86, "below the paper's"),
        (7.9, 7.86, "compatible"),
        (12.0, 7.86, "above the paper's"),
        (4.0, -2.63, "above the paper's"),
        (-9.0, -2.63, "below the paper's"),
        (1.0, float("nan"), ""),
    ],
)
def test_a_size_is_held_against_the_papers(mean: float, printed: float, said: str):
    assert central.size(statistics.Estimate(mean, 0.1, 6.0), printed) == said


def test_a_benchmark_with_two_sources_names_them(monkeypatch):
    monkeypatch.chdir(PROJECT)
    frame = central.answers(VALUES)
    assert {text["Benchmark"] for text in central.text_rows(frame)} == {"split-cifar10"}
    both = pd.concat([frame, frame.assign(source="svhn")])
    named = {text["Benchmark"] for text in central.text_rows(both)}
    assert named == {"split-cifar10 from cifar100", "split-cifar10 from svhn"}
    assert central.text_rows(frame[:0]) == []
