"""Gains: which cells are compared, by which seeds, and the paper's differences beside them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from frames import rows
from scipy import stats

from twf.files import gains_file
from twf.results import cells
from twf.results.figures import KINDS
from twf.results.frame import Results
from twf.results.paper import gains


def rows_of(runs: Results) -> dict[tuple[str, str, int | None], dict[str, Any]]:
    """The gains in Class-IL of the study's table, by the two rows' names and buffer."""
    return {
        (
            row["variant"] or row["method"],
            row["over_variant"] or row["over_method"],
            row["buffer"],
        ): row
        for row in rows(gains.of_tables(runs, cells.of_tables(runs)))
        if row["protocol"] == "class-il"
    }


def text_of(runs: Results, title: str) -> dict[str, str]:
    """A row of the study's table of gains."""
    (table,) = runs.plan.tables.values()
    entries = gains.text_rows(table, gains.of_tables(runs, cells.of_tables(runs)))
    return next(entry for entry in entries if title in entry.values())


@pytest.fixture
def measured(make_plan, recorded) -> Results:
    """TwF gains 5, 6 and 7 points over ER by seed, and 8 over Finetune in the one that it has."""
    levels = {f"split-cifar10.er.500.s{seed}": 60.0 + 10 * seed for seed in range(3)}
    levels |= {f"split-cifar10.twf.500.s{seed}": 65.0 + 11 * seed for seed in range(3)}
    levels["split-cifar10.finetune.s2"] = 79.0
    return recorded(make_plan([0, 1, 2]), levels)


def test_methods_are_compared_as_independent_samples_of_the_seeds_that_both_have(measured):
    """Far apart from seed to seed: the interval is Welch's, whatever the seeds have in common."""
    found = rows_of(measured)
    row = found["twf", "er", 500]
    assert (row["n"], row["n_planned"]) == (3, 3)
    assert row["gain_mean"] == pytest.approx(6.0)
    welch = stats.ttest_ind([65.0, 76.0, 87.0], [60.0, 70.0, 80.0], equal_var=False)
    ends = (row["gain_low"], row["gain_high"])
    assert ends == pytest.approx(tuple(welch.confidence_interval(0.95)))
    assert row["gain_freedom"] == pytest.approx(welch.df)
    assert row["printed_gain"] == pytest.approx(83.65 - 67.24)
    row = found["twf", "finetune", 500]  # which has one of the seeds
    assert (row["n"], row["n_planned"], row["gain_mean"]) == (1, 3, pytest.approx(8.0))
    assert (row["gain_error"], row["gain_low"]) == (None, None)
    assert found["twf", "finetune", 5120]["n"] == 0  # without a buffer, beside each of TwF's
    assert found["twf", "joint", 500]["gain_mean"] is None
    gains.write(measured, cells.of_tables(measured))
    lines = gains_file("small", "md").read_text().splitlines()
    for shown in (
        "| TwF minus | Class-IL, buffer 500 | Class-IL, buffer 5120 |",
        "| ER | +6.00 (-17.92 to +29.92; 4 df)<br>paper +16.41 | —<br>paper +3.28 |",
        "| Finetune | +8.00 n=1/3<br>paper +63.89 |",
        "| Joint (UB) | —<br>paper -9.24 |",
    ):
        assert [line for line in lines if line.startswith(shown)], shown


def test_variants_of_a_method_are_compared_by_seed_with_it_as_it_is(make_plan, recorded):
    variants = {
        "all": {"title": "All"},
        "cl": {"title": "CL", "hyperparameters": {"lambda_fp": 0.0, "lambda_diversity": 0.0}},
        "f6": {"title": "F6", "fidelity": {"F6": "paper"}},
    }
    plan = make_plan([0, 1, 2], methods=["twf"], variants=variants, buffers=[500])
    more = {"cl": lambda seed: -2.0, "f6": lambda seed: 5.0 + seed}
    levels = {}
    for name, run in plan.runs.items():
        gain = next((of(run.seed) for variant, of in more.items() if f".{variant}." in name), 0.0)
        levels[name] = 60.0 + 10 * run.seed + gain
    found = rows_of(recorded(plan, levels))
    assert {name: row["gain_mean"] for name, row in found.items()} == {
        ("cl", "all", 500): -2.0,
        ("f6", "all", 500): 6.0,
    }
    row = found["f6", "all", 500]
    half = 4.30265 / 3**0.5
    assert (row["gain_low"], row["gain_high"]) == pytest.approx((6 - half, 6 + half), abs=1e-4)
    assert row["gain_freedom"] == 2
    # both are in Table 4; a switch stands beside the method's own number
    assert found["cl", "all", 500]["printed_gain"] == pytest.approx(75.79 - 83.65)
    assert row["printed_gain"] is None


def test_a_gain_between_runs_of_different_precision_says_so(make_plan, recorded, row_of):
    plan = make_plan([0, 1], methods=["er", "derpp", "twf"], buffers=[500])
    said = {
        name: json.loads(row_of(plan, name)["provenance"])
        | {"precision": "bf16" if run.method == "twf" or run.seed == 1 else "fp32"}
        for name, run in plan.runs.items()
        if run.method != "derpp"
    }
    runs = recorded(plan, {name: {"provenance": json.dumps(of)} for name, of in said.items()})
    assert rows_of(runs)["twf", "er", 500]["precisions"] == ["bf16", "fp32"]
    shown = text_of(runs, "ER")["Class-IL, buffer 500"]
    assert shown == "+0.00 (+0.00 to +0.00; 1 df) †<br>paper +16.41"
    assert rows_of(runs)["twf", "derpp", 500]["precisions"] == []
    (table,) = runs.plan.tables.values()
    _, rehearsal = cells.layout(table, cells.of_tables(runs))["groups"]
    entries = dict(rehearsal)
    assert [entry.remark for entry in entries["ER"]] == ["†"] * 2
    assert [entry.remark for entry in entries["TwF"]] == [""] * 2


def test_each_other_method_is_compared_with_the_baseline(make_plan, recorded):
    plan = make_plan([0, 1], methods=["er", "derpp", "twf"], buffers=[500], baseline="er")
    levels = {"er": 60.0, "derpp": 62.0, "twf": 65.0}
    runs = recorded(plan, {name: levels[run.method] for name, run in plan.runs.items()})
    found = {names: row["gain_mean"] for names, row in rows_of(runs).items()}
    assert found == {("derpp", "er", 500): 2.0, ("twf", "er", 500): 5.0}
    text = text_of(runs, "DER++")
    assert text["Minus ER"] == "DER++"
    assert text["Class-IL, buffer 500"] == "+2.00 (+2.00 to +2.00; 1 df)<br>paper +11.18"
    frame = KINDS["differences"].frame(runs, plan.tables["main.split-cifar10"])
    assert set(zip(frame["title"], frame["over"], strict=True)) == {
        ("DER++", "Minus ER"),
        ("TwF", "Minus ER"),
    }


def test_a_study_without_twf_or_without_records_has_none(make_plan, collect, recorded):
    none = collect(make_plan([0]))
    (table,) = none.plan.tables.values()
    assert gains.text_rows(table, gains.of_tables(none, cells.of_tables(none))) == []
    assert rows_of(recorded(make_plan([0], methods=["er", "derpp"]))) == {}
