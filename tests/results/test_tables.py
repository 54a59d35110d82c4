"""Tables from synthetic records, against numbers worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
from frames import rows as rows_of

from twf.errors import UserError
from twf.files import PRINTED, table_file
from twf.results import cells, show
from twf.results.frame import Results
from twf.study import Plan

TABLE = "main.split-cifar10"


def stream(final: float, forgotten: float) -> list[list[float]]:
    """Accuracies on 5 tasks: `final` at the end on each, the first four `forgotten` higher before.

    The fifth task is never better than at the end, so FAA is `final` and FF is `forgotten`.
    """
    return [[final + forgotten] * 5] * 4 + [[final] * 5]


def cell(
    runs: Results, method: str, buffer: int | None, protocol: str = "class-il"
) -> dict[str, Any]:
    """The row of one cell of the only table."""
    place = {"method": method, "buffer": buffer, "protocol": protocol}
    (row,) = [row for row in rows_of(cells.of_tables(runs)) if place.items() <= row.items()]
    return row


def write(runs: Results) -> str:
    """Write the only table; its Markdown."""
    (table,) = runs.plan.tables.values()
    cells.write(runs, [table])
    return table_file("small", table.name, "md").read_text()


def markdown_row(text: str, title: str) -> list[str]:
    """The cells of a method's row in a Markdown table, without the paper's numbers below them."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [text.partition("<br>paper")[0].strip() for text in line.split("|")[2:-1]]


@pytest.fixture
def three_seeds(make_plan, recorded) -> Results:
    """With 500, ER's seeds at 60, 70 and 80; of DER++ one diverged, one missing; TwF diverged."""
    records: dict[str, Any] = {f"split-cifar10.joint.s{seed}": 80.0 for seed in range(3)}
    for seed, final in enumerate((60.0, 70.0, 80.0)):
        matrix = stream(final, 10.0 + seed)
        records[f"split-cifar10.er.500.s{seed}"] = {"accuracy_class_il": matrix}
    records["split-cifar10.derpp.500.s0"] = {"accuracy_class_il": stream(90.0, 5.0)}
    for run in ("derpp.500.s1", "twf.500.s0"):
        records[f"split-cifar10.{run}"] = {"status": "diverged", "reason": "nan"}
    return recorded(make_plan([0, 1, 2]), records)


def test_means_and_spreads_over_seeds(three_seeds):
    row = cell(three_seeds, "er", 500)
    assert (row["n"], row["n_planned"], row["n_diverged"]) == (3, 3, 0)
    assert row["faa_mean"] == pytest.approx(70.0)
    assert row["faa_std"] == pytest.approx(10.0)
    half = 4.30265 * 10 / 3**0.5  # Student's, with two degrees of freedom
    assert (row["faa_low"], row["faa_high"]) == pytest.approx((70 - half, 70 + half), abs=1e-3)
    assert row["ff_mean"] == pytest.approx(11.0)
    assert row["ff_high"] == pytest.approx(11 + half / 10, abs=1e-3)
    assert row["ff_std"] == pytest.approx(1.0)
    assert row["ff_paper_mean"] == pytest.approx(11.0)
    assert row["runs"] == [f"split-cifar10.er.500.s{seed}" for seed in range(3)]
    assert (row["printed_faa"], row["printed_ff"]) == (67.24, 38.24)


def test_the_other_means_are_those_of_their_definitions(make_plan, recorded):
    """Learning accuracy, incremental accuracy and transfers of one stream, by hand."""
    matrix = [[90.0 - 10 * t if i <= t else 20.0 for i in range(5)] for t in range(5)]
    columns = {"accuracy_class_il": matrix, "initial_class_il": [15.0] * 5}
    plan = make_plan([0], methods=["er"], buffers=[500])
    row = cell(recorded(plan, {"split-cifar10.er.500.s0": columns}), "er", 500)
    assert row["learning_accuracy_mean"] == row["average_incremental_accuracy_mean"] == 70.0
    assert row["backward_transfer_mean"] == -25.0  # 50 in the end, after 90, 80, 70 and 60
    assert row["forward_transfer_mean"] == 5.0  # 20 before a task, 15 before any


def test_each_definition_of_forgetting_has_its_mean_and_spread(make_plan, recorded):
    """The accuracy rises at the end: nothing is forgotten, or minus the gain."""
    gains = {f"split-cifar10.er.500.s{seed}": gain for seed, gain in enumerate((4.0, 10.0))}
    records = {run: {"accuracy_class_il": stream(50 + g, -g)} for run, g in gains.items()}
    row = cell(recorded(make_plan([0, 1], methods=["er"], buffers=[500]), records), "er", 500)
    assert (row["ff_mean"], row["ff_paper_mean"]) == (0.0, -7.0)
    assert (row["ff_std"], row["ff_paper_std"]) == (0.0, pytest.approx(18**0.5))


def test_unfinished_runs_are_counted_and_not_averaged(three_seeds):
    partial = cell(three_seeds, "derpp", 500)
    assert (partial["n"], partial["n_planned"], partial["n_diverged"]) == (1, 3, 1)
    assert partial["faa_mean"] == 90.0
    assert {partial[name] for name in ("faa_std", "faa_low", "faa_high", "ff_low")} == {None}
    assert partial["runs"] == ["split-cifar10.derpp.500.s0"]
    empty = cell(three_seeds, "twf", 500)
    assert (empty["n"], empty["n_planned"], empty["faa_mean"]) == (0, 3, None)
    text = write(three_seeds)
    assert markdown_row(text, "DER++")[0] == "90.00 (5.00) n=1/3, 1 diverged"
    assert markdown_row(text, "ER")[0] == "**70.00 ± 10.00** (11.00)"  # the best that has finished
    assert "(11.00)<br>paper 67.24 (38.24) |" in text
    assert markdown_row(text, "TwF") == ["— n=0/3, 1 diverged", "—"] * 2
    assert "n=a/b" in text


def test_rows_are_ordered_the_best_rehearsal_method_is_bold_and_one_seed_has_no_spread(
    make_plan, recorded
):
    levels = {"twf": 70.004, "derpp": 70.0, "er": 60.0, "finetune": 20.0, "joint": 99.0}
    plan = make_plan([0], methods=list(levels))
    text = write(recorded(plan, {name: levels[run.method] for name, run in plan.runs.items()}))
    table = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    titles = [row[0].strip() for row in table]
    assert titles == ["Method", ":---", "Joint (UB)", "Finetune", "ER", "DER++", "TwF"]
    heading = [f"{p}-IL, buffer {n}" for p in ("Class", "Task") for n in (500, 5120)]
    assert markdown_row(text, "Method") == heading
    assert markdown_row(text, "Joint (UB)") == ["99.00"] * 4  # not among those compared
    assert markdown_row(text, "Finetune") == ["20.00 (0.00)"] * 4
    assert markdown_row(text, "ER") == ["60.00 (0.00)"] * 4
    for title in ("DER++", "TwF"):  # alike to two decimals: both
        assert markdown_row(text, title) == ["**70.00** (0.00)"] * 4
    assert "one seed" in text and "±" not in text and "n=a/b" not in text


def test_an_untuned_hyperparameter_is_said_in_cell_caption_and_file(make_plan, collect):
    """The paper does not print how strong the EWC anchor is; no search has chosen it here."""
    of = {"benchmarks": ["split-cifar100"], "methods": ["derpp", "derpp-ewc"], "buffers": [500]}
    runs = collect(make_plan([0], **of))
    text = write(runs)
    assert markdown_row(text, "DER++ with EWC") == ["— untuned"] * 2
    assert "Untuned: the paper does not print lambda\\_ewc of DER++ with EWC" in text
    assert cell(runs, "derpp", 500)["untuned"] is None
    assert cell(runs, "derpp-ewc", 500)["untuned"] == "lambda_ewc of DER++ with EWC"


def test_a_run_stands_under_the_protocol_it_was_tuned_for(make_plan, recorded):
    levels = {"split-cifar100.finetune.s0": 30.0, "split-cifar100.finetune.task-il.s0": 90.0}
    runs = recorded(make_plan([0], benchmarks=["split-cifar100"]), levels)
    assert cell(runs, "finetune", None, "class-il")["faa_mean"] == 30.0
    assert cell(runs, "finetune", None, "task-il")["faa_mean"] == 90.0


def test_latex_spans_the_buffers(make_plan, recorded):
    plan = make_plan([0, 1], title="50% of A")
    names = ("finetune.s0", "finetune.s1", "er.500.s0", "er.500.s1", "er.5120.s0")
    write(recorded(plan, {f"split-cifar10.{name}": 80.0 for name in names}))
    text = table_file("small", TABLE, "tex").read_text()
    assert r"\caption{50\% of A: Split CIFAR-10." in text
    assert r"& \multicolumn{2}{c}{80.00 $\pm$ 0.00 (0.00)}" in text
    assert r"& \textbf{80.00 $\pm$ 0.00} (0.00)" in text
    assert r"& \shortstack{80.00 (0.00)\\n=1/2}" in text
    assert r"Buffer size & 500 & 5120 & 500 & 5120 \\" in text
    assert r"\begin{tabular}{lcccc}" in text
    assert "±" not in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


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
    runs = Results.planned(plan)
    assert cell(runs, "derpp", 500)["printed_faa"] == published


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


def test_missing_published_numbers_are_named(three_seeds):
    PRINTED.unlink()
    with pytest.raises(UserError, match=str(PRINTED)):
        write(three_seeds)


@pytest.mark.parametrize(("switch", "forgotten"), [("published", 0.0), ("paper", -20.0)])
def test_f8_says_which_forgetting_is_shown(make_plan, recorded, switch, forgotten):
    """Accuracy that rises by 20 points in the last phase: forgotten is nothing, or minus 20."""
    plan = make_plan([0], methods=["finetune"])
    table = plan.tables[TABLE].model_copy(update={"forgetting": switch})
    plan = plan.model_copy(update={"tables": {TABLE: table}})
    rising = {"accuracy_class_il": stream(70.0, -20.0)}
    runs = recorded(plan, {"split-cifar10.finetune.s0": rising})
    text = write(runs)
    assert markdown_row(text, "Method") == ["Class-IL", "Task-IL"]
    assert markdown_row(text, "Finetune")[0] == f"70.00 ({forgotten:.2f})"
    assert show.escape_markdown(cells.FORGETTING[switch]) in text
