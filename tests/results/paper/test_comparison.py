"""The paper's cells beside ours: verdicts, unfinished runs, commands and cost."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from frames import rows as rows_of
from project import PROJECT

from twf import study
from twf.files import comparison_file
from twf.results.frame import Results
from twf.results.paper import comparison, order
from twf.study import reading

PARAMS = reading.load(PROJECT / "params.yaml")


def row_of_cell(frame: pd.DataFrame, **values: Any) -> dict[str, Any]:
    """The one row with these values."""
    (row,) = [row for row in rows_of(frame) if values.items() <= row.items()]
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
        (5, 1, (69.2, 70.9), "undecided"),  # what diverged is not left out of a verdict
        (0, 0, None, "not run"),
    ],
)
def test_the_verdict_is_where_the_interval_lies(finished, diverged, interval, expected):
    low, high = interval or (None, None)
    row = {"printed_faa": 70.0, "n": finished, "n_diverged": diverged, "reduced": False}
    assert comparison.verdict(row | {"faa_low": low, "faa_high": high}) == expected


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


def test_at_reduced_scale_no_number_is_agreed_or_differed_with(make_plan, recorded):
    make_plan([0])  # for its folder
    values = PARAMS.model_dump(mode="json", exclude_unset=True)
    main = {"title": "Main", "benchmarks": ["split-cifar10"], "methods": ["er"], "buffers": [500]}
    scale = {"split-cifar10": {"epochs": 3, "source": "cifar100-w16"}}
    small = {"title": "Reduced", "seeds": [0, 1], "scale": scale, "experiments": {"main": main}}
    values["studies"]["small"] = small
    found = comparison.compare(PARAMS, recorded(study.expand(reading.check(values), "small")))
    row = row_of_cell(found, **ER)
    assert (row["verdict"], row["source"]) == ("reduced", "cifar100")
    assert row["faa_difference"] == pytest.approx(80 - 67.24)


@pytest.mark.parametrize(
    ("means", "of_all", "with_buffer"),
    [
        ([67.0, 71.0, 71.4, 83.0], (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),  # the paper's order
        ([83.0, 71.4, 71.0, 67.0], (-1.0, -1.0, -1.0), (-1.0, -1.0, -1.0)),
        # two that nobody can tell apart
        ([67.0, 71.4, 71.39, 83.0], (2 / 3, 2 / 3, 1.0), (1 / 3, 1 / 3, 1.0)),
    ],
)
def test_the_order_of_methods_is_a_correlation_with_the_papers(means, of_all, with_buffer):
    """The first has no buffer; Joint does not count."""
    rows = {"method": ["lwf", "er-ace", "derpp", "twf", "joint"], "buffer": [0, 500, 500, 500, 0]}
    frame = pd.DataFrame(rows | {"faa_mean": [*means, 10.0], "faa_std": 0.1, "n": 3, "variant": ""})
    frame["printed_faa"] = [60.0, 70.0, 75.0, 80.0, 90.0]
    place = {"printed_table": 1, "benchmark": "b", "source": "s", "protocol": "class-il"}
    (found,) = rows_of(order.compare(frame.assign(**place)))
    ends = ("tau", "low", "high")
    assert found["n_methods"] == 4 and found["buffer_n_methods"] == 3
    assert tuple(found[name] for name in ends) == pytest.approx(of_all)
    assert tuple(found[f"buffer_{name}"] for name in ends) == pytest.approx(with_buffer)
