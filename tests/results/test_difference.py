"""One method minus another in a line, from records of hand-made accuracies."""

import pytest

from twf.errors import UserError
from twf.results import estimates

VARIANTS = {"all": {"title": "All"}, "high": {"title": "High", "hyperparameters": {"lr": 0.2}}}


def test_two_methods_are_compared_by_welch_and_variants_by_seed(make_plan, recorded):
    """Runs from another source are not averaged in."""
    one = {"methods": ["er", "derpp"], "protocols": ["class-il"], "buffers": [500]}
    others = {"other": {"methods": ["derpp"], "source": "svhn"}}
    plan = make_plan([0, 1, 2], others=others, **one)
    base = {("er", "cifar100"): 50.0, ("derpp", "cifar100"): 60.0, ("derpp", "svhn"): 20.0}
    values = {run.id: base[run.method, run.source] + run.seed for run in plan.runs.values()}
    (line,) = estimates.compared(recorded(plan, values), "derpp", "er")
    place = "split-cifar10 from cifar100, Class-IL, buffer 500"
    assert f"derpp minus er, {place}: +10.00 points" in line and "Welch's, 3 seeds" in line

    plan = make_plan([0, 1, 2, 3, 4], methods=["er"], variants=VARIANTS, buffers=[500])
    values = {r.id: 50.0 + r.seed + (3 if ".high." in r.id else 0) for r in plan.runs.values()}
    line, *_ = estimates.compared(recorded(plan, values), "er.high", "er.all")
    assert "+3.00 points (95 % interval +3.00 to +3.00, paired by seed, 5 seeds)" in line


def test_what_does_not_count_is_named_with_its_remedy(make_plan, recorded):
    plan = make_plan([0, 1], methods=["er", "derpp"], protocols=["class-il"], buffers=[500])
    values = {"split-cifar10.er.500.s0": 50.0, "split-cifar10.derpp.500.s0": 51.0}
    text = "\n".join(estimates.compared(recorded(plan, values), "derpp", "er"))
    assert "+1.00 points (one seed, no interval)" in text
    files = "results/small/runs/split-cifar10.er.500.s1"
    assert f"missing, not counted: snakemake --cores all {files}" in text
    with pytest.raises(UserError, match="no method or variant 'twf'"):
        list(estimates.compared(recorded(plan, values), "twf", "er"))
