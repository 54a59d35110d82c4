"""The central questions: which cells are subtracted, by which model, and what is said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames import rows
from scipy import stats

from twf.results import statistics
from twf.results.frame import Results
from twf.results.paper import central

CL = {"lambda_fp": 0.0, "lambda_fp_replay": 0.0, "lambda_diversity": 0.0}
VARIANTS = {
    "all": {"title": "All", "methods": ["twf"]},
    "cl": {"title": "CL", "methods": ["twf"], "hyperparameters": CL},
    "f6": {"title": "F6", "methods": ["twf"], "fidelity": {"F6": "paper"}},
    "cl-f6": {
        "title": "CL, F6",
        "methods": ["twf"],
        "hyperparameters": CL,
        "fidelity": {"F6": "paper"},
    },
    "as-set": {"title": "as set", "methods": ["derpp"]},
}
FINALS = {  # by cell and seed
    "twf.500": [74.0, 75.0, 75.5],
    "twf.500.cl": [74.2, 75.1, 75.2],
    "twf.500.f6": [71.0, 72.3, 72.0],
    "twf.500.cl-f6": [71.3, 72.2, 72.1],
    "derpp.500": [70.0, 71.5, 69.0],
}


@pytest.fixture
def make(make_plan, recorded):
    def made(finals: dict[str, list[float]]) -> Results:
        plan = make_plan(
            [0, 1, 2],
            methods=["twf", "derpp"],
            variants=VARIANTS,
            buffers=[500],
            protocols=["class-il"],
        )
        levels = {
            f"split-cifar10.{cell}.s{seed}": value
            for cell, values in finals.items()
            for seed, value in enumerate(values)
        }
        return recorded(plan, levels)

    return made


def answers(results: Results) -> dict[str, dict[str, Any]]:
    return {row["question"]: row for row in rows(central.of_results(results))}


def test_the_corners_are_contrasts_of_their_two_way_layout(make):
    found = answers(make(FINALS))
    corners = ("twf.500", "twf.500.cl", "twf.500.f6", "twf.500.cl-f6")
    values = np.array([FINALS[cell] for cell in corners])
    for question, weights in (
        ("propagation", [1, -1, 0, 0]),
        ("propagation-f6", [0, 0, 1, -1]),
        ("stream-alone", [0, 1, 0, -1]),
        ("interaction", [-1, 1, 1, -1]),
    ):
        expected = statistics.layout(values, np.array(weights, float))
        row = found[question]
        assert (row["mean"], row["freedom"]) == pytest.approx((expected.mean, 6))
        assert (row["low"], row["high"]) == pytest.approx(expected.ends())
    assert found["propagation"]["said"] == "no effect"
    assert found["stream"]["said"] == "an effect"
    assert found["propagation"]["size"] == "below the paper's"
    assert found["propagation"]["printed"] == pytest.approx(7.86)
    assert found["propagation-f6"]["printed"] == pytest.approx(7.86)
    assert found["stream"]["size"] is None or not found["stream"]["size"]


def test_welchs_interval_stands_beside_a_layout_of_unequal_variances(make):
    wild = FINALS | {"twf.500.f6": [60.0, 80.0, 72.0], "twf.500.cl-f6": [80.0, 60.0, 72.0]}
    row = answers(make(wild))["propagation"]
    welch = stats.ttest_ind(FINALS["twf.500"], FINALS["twf.500.cl"], equal_var=False)
    assert row["uneven"] > central.UNEVEN
    ends = welch.confidence_interval(0.95)
    assert (row["welch_low"], row["welch_high"]) == pytest.approx(tuple(ends))
    (text,) = (
        t
        for t in central.text_rows(central.of_results(make(wild)))
        if "code's" in t["Question"] and t["Question"].startswith("Propagation and")
    )
    assert "Welch's" in text["Interval"]


def test_no_seed_is_left_out_for_want_of_another_corner(make):
    found = answers(make(FINALS | {"twf.500": FINALS["twf.500"][:2]}))
    paired = stats.ttest_rel(FINALS["twf.500.f6"], FINALS["twf.500.cl-f6"]).confidence_interval(
        0.95
    )
    whole, part = found["propagation-f6"], found["propagation"]
    assert (whole["low"], whole["high"]) == pytest.approx(tuple(paired))
    assert (whole["n"], whole["model"]) == (3, "Student's, by seed")
    assert (part["n"], part["freedom"], part["model"]) == (2, 3, "two-way layout of the corners")


def test_methods_are_compared_by_welch_and_without_all_corners_variants_by_seed(make):
    some = {cell: values for cell, values in FINALS.items() if cell != "twf.500.cl-f6"}
    found = answers(make(some))
    welch = stats.ttest_ind(FINALS["twf.500"], FINALS["derpp.500"], equal_var=False)
    over = found["over-derpp"]
    assert (over["low"], over["high"]) == pytest.approx(tuple(welch.confidence_interval(0.95)))
    assert over["model"] == "Welch's"
    paired = stats.ttest_rel(FINALS["twf.500"], FINALS["twf.500.cl"]).confidence_interval(0.95)
    alone = found["propagation"]
    assert (alone["low"], alone["high"]) == pytest.approx(tuple(paired))
    assert (alone["freedom"], alone["model"]) == (2, "Student's, by seed")
    assert found["propagation-f6"]["said"] == "none finished"


def test_one_seed_decides_nothing(make):
    results = make({cell: values[:1] for cell, values in FINALS.items()})
    found = answers(results)
    assert {row["said"] for row in found.values()} == {"undecided"}
    texts = central.text_rows(central.of_results(results))
    assert {text["Interval"] for text in texts} == {"one seed"}
    assert found["propagation"]["mean"] == pytest.approx(-0.2)


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


def test_a_benchmark_with_two_sources_names_them(make):
    frame = central.of_results(make(FINALS))
    assert {text["Benchmark"] for text in central.text_rows(frame)} == {"split-cifar10"}
    both = pd.concat([frame, frame.assign(source="svhn")])
    named = {text["Benchmark"] for text in central.text_rows(both)}
    assert named == {"split-cifar10 from cifar100", "split-cifar10 from svhn"}
    assert central.text_rows(frame[:0]) == []
