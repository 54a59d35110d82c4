"""Tables: which of the paper's numbers stand beside ours, and what is said of unusual cells."""

import pandas as pd
import pytest

from twf.files import table_file
from twf.results import estimates, show, tables
from twf.results.frame import Results

TABLE = "main.split-cifar10"


def write(runs: Results) -> str:
    """Write the only table; its Markdown."""
    (table,) = runs.plan.tables.values()
    tables.write(runs, estimates.cells(runs, [table]), [table])
    return table_file("small", table.name, "md").read_text()


@pytest.mark.parametrize(("source", "published"), [("svhn", 36.46), ("letters", float("nan"))])
def test_the_published_number_is_that_of_the_same_pretraining(source, published, make_plan):
    one = {"methods": ["derpp"], "buffers": [500], "protocols": ["class-il"]}
    plan = make_plan([0], benchmarks=["split-cifar100"], **one)
    table = plan.tables["main.split-cifar100"].model_copy(update={"paper_source": source})
    plan = plan.model_copy(update={"tables": {table.name: table}})
    found = estimates.cells(Results.of_records(plan, ()), [table])
    papers = found.loc[found["quantity"] == "faa", "paper"].tolist()
    assert papers == pytest.approx([published], nan_ok=True)


def test_all_that_look_like_the_best_are_bold_and_one_that_lacks_a_run_is_not(make_plan, recorded):
    levels = {"twf": 70.004, "derpp": 70.0, "er": 90.0, "joint": 99.0}  # of which Joint is none
    plan = make_plan([0, 1], methods=list(levels), buffers=[500])
    records = {name: levels[run.method] for name, run in plan.runs.items()}
    del records["split-cifar10.er.500.s1"]
    rows = [line.partition("<br>paper")[0] for line in write(recorded(plan, records)).splitlines()]
    assert [row.split("|")[2].strip() for row in rows if "(0.00)" in row or "99.00" in row] == [
        "99.00 ± 0.00<br>99.00 to 99.00, n=2",
        "90.00 (0.00)<br>n=1/2",
        *["<b>70.00 ± 0.00</b> (0.00)<br>70.00 to 70.00, n=2"] * 2,
    ]


@pytest.mark.parametrize(("switch", "forgotten"), [("published", 0.0), ("paper", -20.0)])
def test_f8_says_which_forgetting_is_shown(make_plan, recorded, switch, forgotten):
    """Accuracy that rises by 20 points in the last phase: forgotten is nothing, or minus 20."""
    plan = make_plan([0], methods=["finetune"])
    table = plan.tables[TABLE].model_copy(update={"forgetting": switch})
    plan = plan.model_copy(update={"tables": {TABLE: table}})
    rising = {"accuracy_class_il": [[50.0] * 5] * 4 + [[70.0] * 5]}
    text = write(recorded(plan, {"split-cifar10.finetune.s0": rising}))
    assert f"| Finetune | 70.00 ({forgotten:.2f})<br>n=1<br>" in text
    assert show.escape_markdown(tables.FORGETTING[switch]) in text


def test_variants_gain_over_the_first_that_changes_nothing(make_plan, recorded):
    variants = {name: {"title": name} for name in ("first", "second")}
    variants["slow"] = {"title": "slow", "hyperparameters": {"lr": 1e-6}}
    one = {"methods": ["er"], "buffers": [500], "protocols": ["class-il"]}
    runs = recorded(make_plan([0, 1], **one, variants=variants))
    gains = estimates.gains(runs, estimates.cells(runs, list(runs.plan.tables.values())))
    pairs = zip(gains["variant"], gains["over_variant"], strict=True)
    assert list(pairs) == [("second", "first"), ("slow", "first")]


@pytest.mark.parametrize(
    ("finished", "diverged", "interval", "expected"),
    [
        (3, 0, (69.2, 70.9), "equivalent"),
        (3, 0, (69.0, 71.0), "equivalent"),  # the margin's ends belong to it
        (3, 0, (71.1, 73.0), "higher"),
        (3, 0, (71.0, 73.0), "undecided"),
        (3, 0, (66.0, 68.9), "lower"),
        (3, 0, (60.0, 80.0), "undecided"),
        (1, 0, None, "undecided"),  # one seed has no interval
        (5, 1, (69.2, 70.9), "undecided"),  # what diverged is not left out of a verdict
        (0, 0, None, "not run"),
    ],
)
def test_agreement_with_the_paper_is_where_the_interval_lies(
    finished, diverged, interval, expected
):
    low, high = interval or (None, None)
    row = {"paper": 70.0, "n": finished, "diverged": diverged, "low": low, "high": high}
    assert estimates.agreement(row, reduced=False) == expected
    assert estimates.agreement(row, reduced=True) == ("reduced" if finished else "not run")
    assert estimates.agreement(row | {"paper": None}, reduced=False) == ""


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ([10.0, 71.0, 71.4, 83.0], (1.0, 1.0, 1.0)),  # the paper's order
        ([90.0, 71.4, 71.0, 67.0], (-1.0, -1.0, -1.0)),
        ([10.0, 71.4, 71.39, 83.0], (1 / 3, 1 / 3, 1.0)),  # two that nobody can tell apart
    ],
)
def test_the_order_of_methods_is_a_correlation_with_the_papers(means, expected):
    """The first has no buffer, and does not count."""
    rows = {"method": ["lwf", "er-ace", "derpp", "twf"], "buffer": [0, 500, 500, 500]}
    frame = pd.DataFrame(rows | {"mean": means, "sd": 0.1, "n": 3, "variant": ""})
    frame["paper"] = [60.0, 70.0, 75.0, 80.0]
    place = {"benchmark": "b", "source": "s", "protocol": "class-il", "quantity": "faa"}
    (row,) = estimates.order(frame.assign(**place)).to_dict("records")
    assert row["n"] == 3
    assert tuple(row[name] for name in ("mean", "low", "high")) == pytest.approx(expected)


def test_text_becomes_markdown_on_one_line():
    assert show.escape_markdown("a|b\n*c* <script>") == r"a\|b \*c\* \<script\>"


def test_an_end_that_rounds_to_zero_keeps_its_side():
    assert show.interval(-0.003, 4.97, "+") == "-0.00 to +4.97"
    assert show.interval(-0.0, 0.0, "+") == "+0.00 to +0.00"
    assert show.interval(float("nan"), 1.0) == "—"
