"""Evidence: records that never change, and the pages that are held to them."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import PROJECT

from twf.errors import UserError
from twf.files import locked
from twf.results import evidence, findings, pages, record


def row(run: str, accuracy: float, study: str = "mine") -> dict:
    values = dict.fromkeys(record.SCHEMA.names)
    matrix = [[accuracy, 0.0], [accuracy, accuracy]]
    epochs = [{"loss": loss, "terms": [("distance", 0.5)]} for loss in (1.0, 2.0)]
    switches = {"F6": "paper"} if ".f6" in run else {"F6": "published"} if "s0" in run else {}
    parameters = {"benchmark": "b", "network": "wide" in run, "epochs": 2, "fidelity": switches}
    return values | {
        **{"run": run, "study": study, "seed": int(run[-1]), "status": "finished"},
        "history": [
            dict.fromkeys(record.SCHEMA.field("history").type.value_type.names) | epoch
            for epoch in epochs
        ],
        "accuracy_class_il": matrix,
        "accuracy_task_il": matrix,
        "provenance": json.dumps({"precision": "fp32", "parameters": parameters}),
    }


def write(folder: Path, *rows: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for values in rows:
        table = pa.Table.from_pylist([values], schema=record.SCHEMA)
        pq.write_table(table, folder / f"{values['run']}.parquet", write_page_checksum=True)
    return folder


def test_records_are_appended_and_old_rows_stay(tmp_path):
    first = row("split-mine.er.8.s0", 50.0)
    path, added = evidence.add(write(tmp_path / "a", first), tmp_path / "evidence")
    assert (path.name, added) == ("mine.parquet", 1)
    second = row("split-mine.er.8.s1", 60.0)
    assert evidence.add(write(tmp_path / "a", second), tmp_path / "evidence") == (path, 1)
    assert evidence.read_table(path).to_pylist() == [first, second]
    assert evidence.add(tmp_path / "a", tmp_path / "evidence") == (path, 0)


def test_what_does_not_belong_or_is_damaged_is_refused_and_nothing_changes(tmp_path):
    path, _ = evidence.add(write(tmp_path / "a", row("er.s0", 50.0)), tmp_path / "evidence")
    before = path.read_bytes()
    changed = write(tmp_path / "b", row("er.s0", 51.0), row("er.s1", 52.0))
    with pytest.raises(UserError, match=r"mine\.parquet has another record of er\.s0"):
        evidence.add(changed, tmp_path / "evidence")
    mixed = write(tmp_path / "c", row("er.s2", 1.0), row("er.s3", 1.0, study="other"))
    with pytest.raises(UserError, match="records of 2 studies"):
        evidence.add(mixed, tmp_path / "evidence")
    with pytest.raises(UserError, match="records of 0 studies"):
        evidence.add(tmp_path / "none", tmp_path / "evidence")
    damaged = write(tmp_path / "e", row("er.s4", 50.0)) / "er.s4.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"er\.s4\.parquet cannot be read"):
        evidence.add(tmp_path / "e", tmp_path / "evidence")
    assert path.read_bytes() == before


def test_adding_is_refused_while_another_process_adds_and_what_has_no_records_is_named(tmp_path):
    folder = write(tmp_path / "a", row("er.s0", 50.0))
    with locked(tmp_path / ".mine.parquet.lock", "x"), pytest.raises(UserError, match="adding to"):
        evidence.add(folder, tmp_path)
    pq.write_table(pa.table({"mean": [1.0]}), folder / "estimates.parquet")
    with pytest.raises(UserError, match="estimates.parquet has no records"):
        evidence.add(folder, tmp_path)
    assert not (tmp_path / "mine.parquet").exists()


def test_records_of_other_versions_of_the_schema_share_a_table(tmp_path):
    """Whatever columns records have today: the code that reads them is not asked."""
    earlier, later = row("er.s0", 50.0), row("er.s1", 60.0)
    table = pa.Table.from_pylist([earlier], schema=record.SCHEMA).drop(["gates_open"])
    (tmp_path / "a").mkdir()
    pq.write_table(table, tmp_path / "a" / "er.s0.parquet")
    path, _ = evidence.add(tmp_path / "a", tmp_path / "evidence")
    assert "gates_open" not in evidence.read_table(path).column_names
    table = pa.Table.from_pylist([later], schema=record.SCHEMA).append_column("joules", [[2.5]])
    pq.write_table(table, tmp_path / "a" / "er.s1.parquet")
    assert evidence.add(tmp_path / "a", tmp_path / "evidence") == (path, 1)
    rows = evidence.read_table(path).to_pylist()
    assert rows == [earlier | {"joules": None}, later | {"joules": 2.5}]


@pytest.fixture
def asked(tmp_path, monkeypatch) -> findings.Findings:
    """Three seeds: 50, 52, 54; without something 44, 45, 46; with F6's switch, and wide, 60."""
    rows = [row(f"split-mine.er.8.s{s}", 50.0 + 2 * s) for s in range(3)]
    rows += [row(f"split-mine.er.8.off.s{s}", 44.0 + s) for s in range(3)]
    rows += [row(f"split-mine.er.8.{name}.s{s}", 60.0) for s in range(3) for name in ("f6", "wide")]
    evidence.add(write(tmp_path / "a", *rows), tmp_path)
    (tmp_path / "questions.yaml").write_text(
        """
settings:
  here: &here {title: Here, benchmark: split-mine, buffer: 8, files: [mine]}
  forgotten: {<<: *here, measure: ff}
questions:
  er: {title: ER, arms: [er.B]}
  gain: &gain {title: Gain, arms: [er.B, er.B.off], rule: paired, since: planned}
  corners: {<<: *gain, layout: [er.B, er.B.off, er.B.f6, er.B.wide]}
  apart: {<<: *gain, rule: welch}
  f6: {title: F6, arms: [er.B.f6, er.B.off]}
  wide: {title: Wide, arms: [er.B.wide, er.B.off]}
  absent: {title: Absent, arms: [er.B.none]}
tables: {all: {questions: [er, gain, absent], settings: [here]}}
figures: {}
curves: {}
claims: {file: mine, sources: {}, variants: {}, class_il: []}
"""
    )
    monkeypatch.chdir(PROJECT)
    return findings.Findings(tmp_path)


@pytest.mark.parametrize("diverged", [False, True])
def test_a_table_says_what_the_records_say(tmp_path, asked, diverged):
    """A run that diverged is counted, whatever its accuracy, and never averaged."""
    if diverged:
        lost = {"status": "diverged", "reason": "loss"}
        names = [f"split-mine.er.8.{name}" for name in ("s3", "none.s0", "wide.s3")]
        evidence.add(write(tmp_path / "b", *(row(name, 99.0) | lost for name in names)), tmp_path)
        asked = findings.Findings(tmp_path)
    note = " (1 diverged)" * diverged
    assert asked.markdown("all").splitlines()[2:] == [
        f"| ER | 52.00 ± 2.00{note} |",
        f"| Gain | 7.00 (4.52 to 9.48){note} |",
        f"| Absent | —{note} |",
    ]
    page = "<!-- gain here full -->{}<!-- end -->".format
    assert asked.filled(page("")) == page(f"7.00 (4.52 to 9.48){note}")
    gain = asked.estimate("gain", "here")
    assert gain is not None and gain["n"] == 3
    assert gain["verdict"] == ("undecided" if diverged else "an effect")
    layout = asked.estimate("corners", "here", layout=True)  # another corner has diverged too
    assert layout is not None and layout["rule"] == "layout" and layout["mean"] == 7.0
    assert layout["note"] == "2 diverged" * diverged
    assert layout["verdict"] == ("undecided" if diverged else "an effect")


def test_a_seed_counts_where_all_arms_have_it(tmp_path, asked):
    more = [row("split-mine.er.8.s3", 99.0), row("split-mine.er.8.off.s4", 0.0)]
    evidence.add(write(tmp_path / "b", *more), tmp_path)
    for question in ("gain", "apart"):
        estimate = findings.Findings(tmp_path).estimate(question, "here")
        assert estimate is not None and (estimate["n"], estimate["mean"]) == (3, 7.0)


def test_a_table_of_gates_has_shares_before_and_after_training_averaged_over_seeds(tmp_path, asked):
    for seed, after in enumerate((30.0, 40.0)):
        gates = [[50.0] * 5, [99.0] * 5, [after, 10.0, 20.0, 30.0, 40.0]]
        probed = row(f"split-mine.twf.8.s{seed}", 50.0) | {"gates_open": gates}
        evidence.add(write(tmp_path / f"g{seed}", probed), tmp_path)
    path = tmp_path / "questions.yaml"
    text = path.read_text().replace("  er: {", "  twf: {title: TwF, arms: [twf.B]}\n  er: {")
    shown = "tables: {gates: {kind: gates, questions: [twf, er, absent], settings: [here]}, "
    path.write_text(text.replace("tables: {", shown))
    assert findings.Findings(tmp_path).markdown("gates").splitlines()[2:] == [
        "| TwF | 50 → 35 | 50 → 10 | 50 → 20 | 50 → 30 | 50 → 40 |",
        "| ER | — | — | — | — | — |",
        "| Absent | — | — | — | — | — |",
    ]


def test_a_point_of_a_curve_has_the_distances_share_and_the_scale_of_its_runs(asked):
    points = asked.shares("gain", "here")
    assert points["share"].tolist() == [(0.5 + 0.25) / 2] * 3
    assert points["gain"].tolist() == [6.0, 7.0, 8.0]
    scales = [set(asked.shares(name, "here")["scale"]) for name in ("gain", "f6", "wide")]
    assert [*map(len, scales), len(set.union(*scales))] == [1, 1, 1, 3]
    assert asked.shares("absent", "here").empty


def test_marked_parts_of_a_page_are_filled_and_all_else_stays(asked):
    page = "a <!-- gain here mean 1 -->?<!-- end --> b\n<!-- table all -->old<!-- end -->\n"
    filled = asked.filled(page)
    assert "a <!-- gain here mean 1 -->7.0<!-- end --> b" in filled and "| ER |" in filled
    assert asked.filled(filled) == filled
    with pytest.raises(UserError, match="no question 'other'"):
        asked.filled("<!-- other here mean --><!-- end -->")
    with pytest.raises(UserError, match="gain here ful: a number is marked"):
        asked.filled("<!-- gain here ful --><!-- end -->")
    with pytest.raises(UserError, match="no records"):
        asked.filled("<!-- absent here mean --><!-- end -->")


def test_the_projects_findings_are_the_same_bytes_again(tmp_path, monkeypatch):
    """Of what git has, twice; and the pages say the same."""
    monkeypatch.chdir(PROJECT)
    for path in evidence.EVIDENCE.glob("*.parquet"):
        assert pd.Series(evidence.read_table(path)["run"].to_pylist()).is_unique, path
    asked = findings.Findings()
    for path in pages.PAGES:
        page = path.read_text(encoding="utf-8")
        assert asked.filled(page) == page, path
    for path in pages.write(asked, tmp_path):
        assert path.read_bytes() == (PROJECT / "docs" / path.name).read_bytes(), path.name


def test_the_numbers_without_this_code_are_the_same(monkeypatch):
    """The functions of docs/evidence.md, which use none of the project, beside the estimates."""
    monkeypatch.chdir(PROJECT)
    page = (PROJECT / "docs/evidence.md").read_text(encoding="utf-8")
    names: dict = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    asked, rows = findings.Findings(), 0
    for setting, study in {"c10-w16": "corners-w16", "c10-w64-5": "corners-5"}.items():
        for name, question in asked.asked.questions.items():
            row = asked.estimate(name, setting)
            if row is None or row["rule"] != "paired" or len(question.arms) != 2:
                continue
            if row["study"] != study or row["n"] < 2:
                continue
            cells = [f"split-cifar10.{arm.replace('.B', '.500')}" for arm in question.arms]
            mean, ends = names["paired"](
                *(names["accuracy"](names["evidence"](study), cell) for cell in cells)
            )
            assert (row["mean"], row["low"], row["high"]) == pytest.approx((mean, *ends))
            rows += 1
    assert rows > 8
