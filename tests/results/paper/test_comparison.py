"""The paper's cells beside ours: verdicts, unfinished runs, commands and cost."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from frames import rows
from project import PROJECT

from twf import study
from twf.files import comparison_file
from twf.results.frame import Results
from twf.results.paper import comparison, order
from twf.study import reading

PARAMS = reading.load(PROJECT / "params.yaml")


def row_of_cell(frame: pd.DataFrame, **values: Any) -> dict[str, Any]:
    """The one row with these values."""
    (row,) = [row for row in rows(frame) if values.items() <= row.items()]
    return row


ER = {"benchmark": "split-cifar10", "method": "er", "buffer": 500, "protocol": "class-il"}


@pytest.mark.parametrize(
    ("finished", "diverged", "interval", "expected"),
    [
        (3, 0, (69.2, 70.9), "equivalent"),
        (3, 0, (69.0, 71.0), "equivalent"),  # the margin's ends belong to it
        (3, 0, (71.1, 73.0), "higher"),
        (3, 0, (71.0, 73.0), "undecided"),
        (3, 0, (66.0, 68.9), "lower"),
        (3, 0, (66.0, 69.5), "undecided"),
        (3, 0, (60.0, 80.0), "undecided"),
        (1, 0, None, "undecided"),  # one seed has no interval
        (0, 3, None, "undecided"),
        (0, 0, None, "not run"),
    ],
)
def test_the_verdict_is_where_the_interval_lies(finished, diverged, interval, expected):
    low, high = interval or (None, None)
    row = {"printed_faa": 70.0, "n": finished, "n_diverged": diverged, "reduced": False}
    assert comparison.verdict(row | {"faa_low": low, "faa_high": high}) == expected


def test_a_cell_has_the_papers_number_ours_and_the_difference(make_plan, recorded):
    """The first task was better by 10 at first."""
    matrices = [[[final + 10] * 5] + [[final] * 5] * 4 for final in (66.9, 67.1, 67.3)]
    runs = [f"split-cifar10.er.500.s{seed}" for seed in range(3)]
    records = {run: {"accuracy_class_il": m} for run, m in zip(runs, matrices, strict=True)}
    row = row_of_cell(comparison.compare(PARAMS, recorded(make_plan([0, 1, 2]), records)), **ER)
    assert (row["printed_faa"], row["printed_ff"]) == (67.24, 38.24)
    assert (row["n"], row["n_planned"], row["n_diverged"]) == (3, 3, 0)
    assert row["faa_mean"] == pytest.approx(67.1)
    half = 4.30265 * 0.2 / 3**0.5
    ends = (row["faa_low"], row["faa_high"])
    assert ends == pytest.approx((67.1 - half, 67.1 + half), abs=1e-4)
    assert row["ff_mean"] == pytest.approx(2.5)
    assert row["faa_difference"] == pytest.approx(-0.14)
    assert row["ff_difference"] == pytest.approx(2.5 - 38.24)
    assert (row["verdict"], row["study"]) == ("equivalent", "small")
    assert row["faa_std"] == pytest.approx(0.2)
    files = [f"results/small/runs/{run}.parquet" for run in runs]
    assert row["command"] == f"snakemake --cores all {' '.join(files)}"


def test_all_144_cells_are_there_in_any_study(monkeypatch):
    monkeypatch.chdir(PROJECT)
    found = comparison.compare(PARAMS, Results.planned(study.expand(PARAMS, "demo")))
    assert len(found) == 144
    assert set(found["verdict"]) == {"not run"}
    assert set(found["study"]) == {"paper"}  # which has each of them
    paper = study.expand(PARAMS, "paper").runs
    assert all(set(runs) <= set(paper) and runs for runs in found["runs"])
    place = {"method": "twf", "variant": "fp-aux", "benchmark": "split-cub200", "buffer": 400}
    assert row_of_cell(found, **place)["command"] == (
        "snakemake --cores all results/paper/runs/split-cub200.twf.400.fp-aux.s0.parquet"
    )


def test_a_cell_of_no_study_has_no_command(make_plan, collect):
    runs = collect(make_plan([0]))
    only_demo = PARAMS.model_copy(update={"studies": {"demo": PARAMS.studies["demo"]}})
    found = comparison.compare(only_demo, runs)
    row = row_of_cell(found, printed_table=3, method="joint", protocol="task-il")
    assert (row["verdict"], row["study"], row["command"], row["n_planned"]) == (
        *("not run", None, None, 0),
    )
    comparison.write(only_demo, runs)
    line = "| Joint (UB) | split-cub200 from imagenet | Task-IL | — | 86.48 | — | — | 0/0 | — |"
    assert f"{line} not run | — | — |" in comparison_file("small", "md").read_text()


def test_the_papers_two_values_of_one_cell_have_a_row_each(make_plan, recorded):
    """TwF on Split CUB-200 with buffer 400: 57.78 in Table 3, 59.67 in Table 4."""
    make_plan([0])  # for its folder
    twf = {"title": "T", "benchmarks": ["split-cub200"], "methods": ["twf"]}
    variants = {"all": {"title": "CL + FP + AUX"}}
    ablation = twf | {"seeds": [0], "variants": variants, "protocols": ["class-il"]}
    values = PARAMS.model_dump(mode="json")
    experiments = {"main": twf, "ablation": ablation}
    values["studies"]["small"] = {"title": "Both", "seeds": [0, 1], "experiments": experiments}
    plan = study.expand(reading.check(values), "small")
    levels = {"split-cub200.twf.400.s0": 57.7, "split-cub200.twf.400.s1": 57.8}
    found = comparison.compare(PARAMS, recorded(plan, levels))
    cell = {"benchmark": "split-cub200", "method": "twf", "buffer": 400, "protocol": "class-il"}
    third = row_of_cell(found, printed_table=3, **cell)
    fourth = row_of_cell(found, printed_table=4, variant="all", **cell)
    assert (third["printed_faa"], fourth["printed_faa"]) == (57.78, 59.67)
    assert third["faa_mean"] == fourth["faa_mean"] == pytest.approx(57.75)  # the same two runs
    assert third["runs"] == fourth["runs"]
    assert (third["verdict"], fourth["verdict"]) == ("equivalent", "lower")


def test_at_reduced_scale_the_order_of_methods_counts(make_plan, recorded, collect):
    make_plan([0])  # for its folder
    means = {"er": 67.0, "er-ace": 71.0, "derpp": 71.4, "twf": 83.0}  # the paper's order
    values = PARAMS.model_dump(mode="json", exclude_unset=True)
    main = {"title": "Main", "benchmarks": ["split-cifar10"], "methods": ["joint", *means]}
    values["studies"]["small"] = {
        "title": "Reduced",
        "seeds": [0, 1, 2],
        "scale": {"split-cifar10": {"epochs": 3, "source": "cifar100-w16"}},
        "experiments": {"main": main | {"buffers": [500]}},
    }
    plan = study.expand(reading.check(values), "small")

    def compare(**finals: float) -> tuple[pd.DataFrame, dict[str, Any]]:
        levels = {
            f"split-cifar10.{method}.500.s{seed}": final + seed / 10
            for method, final in finals.items()
            for seed in range(3)
        }
        levels |= {f"split-cifar10.joint.s{seed}": 10.0 for seed in range(3)}  # does not count
        frame = comparison.compare(PARAMS, recorded(plan, levels))
        return frame, row_of_cell(order.compare(frame), protocol="class-il")

    frame, found = compare(**means)
    row = row_of_cell(frame, **ER)
    assert (row["verdict"], row["source"]) == ("reduced", "cifar100")
    assert row["faa_difference"] == pytest.approx(67.1 - 67.24)
    assert (found["n_methods"], found["tau"], found["low"], found["high"]) == (4, 1.0, 1.0, 1.0)
    # the other way round
    _, found = compare(**dict(zip(means, reversed(means.values()), strict=True)))
    assert (found["tau"], found["low"], found["high"]) == (-1.0, -1.0, -1.0)
    # two that nobody can tell apart
    _, found = compare(**(means | {"er-ace": 71.4, "derpp": 71.39}))
    assert (found["tau"], found["low"], found["high"]) == pytest.approx((2 / 3, 2 / 3, 1))
    comparison.write(PARAMS, collect(plan))
    assert "Kendall" in comparison_file("small", "md").read_text()


def test_the_order_among_methods_with_a_buffer_stands_apart(make_plan, recorded):
    """Those without are below them at any scale: 6 of the 10 pairs, which say little."""
    reversed_order = {"finetune": 20.0, "lwf": 21.0, "er": 80.0, "derpp": 70.0, "twf": 60.0}
    plan = make_plan([0], methods=list(reversed_order), buffers=[500])
    levels = {run: reversed_order[plan.runs[run].method] for run in plan.runs}
    compared = comparison.compare(PARAMS, recorded(plan, levels))
    row = row_of_cell(order.compare(compared), protocol="class-il")
    assert (row["n_methods"], row["tau"], row["low"]) == (5, pytest.approx(0.4), None)
    assert (row["buffer_n_methods"], row["buffer_tau"]) == (3, -1.0)
    (texts, _) = order.text_rows(order.compare(compared))
    assert texts["Kendall's tau"] == "+0.40, 5 methods"
    assert texts["Of methods with a buffer"] == "-1.00, 3 methods"


def test_hours_are_those_on_gpus(make_plan, row_of, recorded):
    plan = make_plan([0, 1, 2], methods=["er"])
    run = "split-cifar10.er.500.s{}".format
    provenance = json.loads(row_of(plan, run(0))["provenance"])
    provenance["versions"]["cuda"] = "13.0"
    on_gpu = {"provenance": json.dumps(provenance), "device": "A GPU", "seconds": 5400.0}
    diverged = on_gpu | {"status": "diverged"}
    runs = recorded(plan, {run(0): on_gpu, run(1): diverged, run(2): 80.0})  # the last on a CPU
    found = comparison.compare(PARAMS, runs)
    row = row_of_cell(found, **ER)
    assert (row["n"], row["n_diverged"], row["verdict"]) == (2, 1, "higher")
    assert (row["gpu_hours"], row["devices"]) == (3.0, ["A GPU"])
    elsewhere = row_of_cell(found, **ER | {"buffer": 5120})
    assert (elsewhere["gpu_hours"], elsewhere["devices"]) == (None, [])
    comparison.write(PARAMS, runs)
    text = comparison_file("small", "md").read_text()
    assert "3.00 GPU hours on A GPU" in text  # once, though two protocols show these runs


def test_the_page_has_a_row_for_each_cell_and_counts_the_verdicts(make_plan, recorded):
    comparison.write(PARAMS, recorded(make_plan([0, 1])))
    text = comparison_file("small", "md").read_text()
    assert len([line for line in text.splitlines() if "`snakemake --cores all" in line]) == 144
    assert "| DER++ | split-cifar10 from cifar100 | Class-IL | 500 | 78.42 (20.18) |" in text
    assert "80.00 (0.00) | 80.00 to 80.00 | 2/2 | +1.58 | higher |" in text
    assert "| TwF, CL + FP | split-cifar10" in text
    assert [line for line in text.splitlines() if line.startswith("## Table")] == [
        f"## Table {number} of the paper" for number in range(1, 6)
    ]
    counts = comparison.COMPARED.read("small")["verdict"].value_counts()
    for name in comparison.VERDICTS:
        assert f"- {name}: {counts.get(name, 0)}\n" in text
