"""Tables: which of the paper's numbers stand beside ours, and what is said of unusual cells."""

from __future__ import annotations

import pytest
from frames import rows as rows_of

from twf.errors import UserError
from twf.files import PRINTED, table_file
from twf.results import cells, show
from twf.results.frame import Results
from twf.study import Plan

TABLE = "main.split-cifar10"


def write(runs: Results) -> str:
    """Write the only table; its Markdown."""
    (table,) = runs.plan.tables.values()
    cells.write(runs, [table])
    return table_file("small", table.name, "md").read_text()


@pytest.mark.parametrize(
    ("benchmark", "source", "published"),
    [
        ("split-cifar100", "tiny-imagenet", 43.65),
        ("split-cifar100", "svhn", 36.46),
        ("split-cifar100", "letters", None),
        ("split-digits", "letters", None),
    ],
)
def test_the_published_number_is_that_of_the_same_pretraining(
    benchmark, source, published, make_plan
):
    plan: Plan = make_plan([0], benchmarks=[benchmark], methods=["derpp"], buffers=[500])
    table = plan.tables[f"main.{benchmark}"].model_copy(update={"paper_source": source})
    plan = plan.model_copy(update={"tables": {table.name: table}})
    row, _ = rows_of(cells.of_tables(Results.planned(plan)))
    assert row["printed_faa"] == published


def test_the_paper_has_no_number_without_pretraining_or_of_other_hyperparameters(make_plan):
    variants = {
        "pretrained": {"title": "P"},
        "scratch": {"title": "S", "pretrained": False},
        "f6": {"title": "F6", "fidelity": {"F6": "paper"}},
        "slow": {"title": "Slow", "hyperparameters": {"lr": 1e-6}},
        "cl": {"title": "CL", "hyperparameters": {"lambda_fp": 0.0}},  # of Table 4
    }
    plan = make_plan([0], methods=["twf"], buffers=[500], protocols=["class-il"], variants=variants)
    rows = rows_of(cells.of_tables(Results.planned(plan)))
    assert {row["variant"]: row["printed_faa"] for row in rows} == {
        "pretrained": 83.65,
        "scratch": None,
        "f6": 83.65,
        "slow": None,
        "cl": 75.79,
    }


def test_missing_published_numbers_are_named(make_plan, collect):
    PRINTED.unlink()
    with pytest.raises(UserError, match=str(PRINTED)):
        write(collect(make_plan([0])))


def test_all_that_look_like_the_best_are_bold_and_one_seed_has_no_spread(make_plan, recorded):
    levels = {"twf": 70.004, "derpp": 70.0, "er": 60.0, "joint": 99.0}  # of which Joint is none
    plan = make_plan([0], methods=list(levels), buffers=[500])
    text = write(recorded(plan, {name: levels[run.method] for name, run in plan.runs.items()}))
    rows = [line.partition("<br>")[0] for line in text.splitlines() if "<br>" in line]
    assert [row.split("|")[2].strip() for row in rows] == [
        *("99.00", "60.00 (0.00)", "**70.00** (0.00)", "**70.00** (0.00)"),
    ]
    assert "one seed" in text and "±" not in text and "n=a/b" not in text


@pytest.mark.parametrize(("switch", "forgotten"), [("published", 0.0), ("paper", -20.0)])
def test_f8_says_which_forgetting_is_shown(make_plan, recorded, switch, forgotten):
    """Accuracy that rises by 20 points in the last phase: forgotten is nothing, or minus 20."""
    plan = make_plan([0], methods=["finetune"])
    table = plan.tables[TABLE].model_copy(update={"forgetting": switch})
    plan = plan.model_copy(update={"tables": {TABLE: table}})
    rising = {"accuracy_class_il": [[50.0] * 5] * 4 + [[70.0] * 5]}
    text = write(recorded(plan, {"split-cifar10.finetune.s0": rising}))
    assert f"| Finetune | 70.00 ({forgotten:.2f})<br>" in text
    assert show.escape_markdown(cells.FORGETTING[switch]) in text


def test_a_cell_that_lacks_a_run_is_not_bold(make_plan, recorded):
    plan = make_plan([0, 1], methods=["er", "derpp"], buffers=[500])
    whole = dict.fromkeys((name for name in plan.runs if ".er." in name), 60.0)
    text = write(recorded(plan, whole | {"split-cifar10.derpp.500.s0": 90.0}))
    assert "| ER | **60.00 ± 0.00** (0.00)<br>" in text
    assert "| DER++ | 90.00 (0.00) n=1/2<br>" in text
