"""The findings: from `results/evidence` to estimates and tables.

`questions.yaml` there says what is compared. Nothing here knows a study, a method or a benchmark.
"""

import json
import math
import re
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import ValidationError

from twf.errors import UserError, explain, invalid_file, lookup
from twf.learning.evaluation.metrics import final_average_accuracy
from twf.results import show, statistics
from twf.results.evidence import EVIDENCE, read_table
from twf.results.frame import column
from twf.results.printed import printed_keys
from twf.study.params import PROTOCOLS, Protocol
from twf.study.reading import plain_values
from twf.study.types import Strict

SIGNS = (1.0, -1.0, -1.0, 1.0)  # of a question's arms
BLOCK = re.compile(r"<!-- ([a-z][^>]*?) -->(.*?)<!-- end -->", flags=re.S)


class Setting(Strict):
    """Where a question is asked: a benchmark, a buffer, and the tables of records to look in."""

    title: str
    benchmark: str
    buffer: int
    protocol: Protocol = "class-il"
    files: list[str]  # arms are of the first that has all


class Question(Strict):
    """A mean (one arm), a difference (two), or a difference of differences (four)."""

    title: str
    arms: list[str]
    rule: Literal["student", "paired", "welch"] = "student"
    # the corners of the two-way layout by which docs/plan.md asked, whose interval is shown first
    layout: list[str] | None = None
    since: Literal["", "planned", "exploratory"] = ""


class Table(Strict):
    """Questions by settings, as a page shows them."""

    questions: list[str]
    settings: list[str]
    paper: str | None = None  # a last column: the paper's numbers of this benchmark
    beside: bool = False  # the paper's number within each cell


class Figure(Strict):
    """Questions and settings that a drawing shows."""

    kind: Literal["scale", "share"]
    questions: list[str]
    settings: list[str]


class Questions(Strict):
    """The whole of `questions.yaml`."""

    settings: dict[str, Setting]
    questions: dict[str, Question]
    tables: dict[str, Table]
    figures: dict[str, Figure]


class Findings:
    """The evidence of a folder and its questions."""

    def __init__(self, folder: Path = EVIDENCE) -> None:
        self.folder, path = folder, folder / "questions.yaml"
        values = plain_values(path.read_text(encoding="utf-8"), path)
        try:
            self.asked = Questions.model_validate(values)
        except ValidationError as error:
            raise invalid_file(path, explain(error)) from None
        self.cells: dict[str, dict[str, pd.DataFrame]] = {}  # by study
        self.printed = {
            (key.benchmark, key.method, key.variant, key.buffer, key.protocol): number
            for key, number in printed_keys().items()
            if key.source != "svhn"
        }

    def records(self, study: str) -> dict[str, pd.DataFrame]:
        """The records of a study's cells by seed: precision, the distance's share of the loss.

        And final average accuracy in per cent, by protocol; none of a run that diverged.
        """
        if study not in self.cells:
            rows = [
                {"cell": row["run"].rpartition(".s")[0], "seed": row["seed"]}
                | {"precision": str(json.loads(row["provenance"])["precision"])}
                | {"share": _share(row["history"])}
                | {p: _final(row, column("accuracy", p)) for p in PROTOCOLS}
                for row in read_table(self.folder / f"{study}.parquet").to_pylist()
            ]
            frame = pd.DataFrame(rows).set_index("seed").sort_index()
            self.cells[study] = {str(cell): runs for cell, runs in frame.groupby("cell")}
        return self.cells[study]

    def arms(self, arms: list[str], setting: Setting) -> tuple[str, dict[str, pd.DataFrame]] | None:
        """The first study that has all arms, and the runs of each; None where none has.

        A mean under Task-IL is of the runs with hyperparameters for Task-IL, if there are any.
        """
        for study in setting.files:
            records = self.records(study)
            cells = [f"{setting.benchmark}.{a.replace('.B', f'.{setting.buffer}')}" for a in arms]
            if len(arms) == 1 and f"{cells[0]}.{setting.protocol}" in records:
                cells = [f"{cells[0]}.{setting.protocol}"]
            if all(cell in records for cell in cells):
                return study, dict(zip(arms, map(records.__getitem__, cells), strict=True))
        return None

    def estimate(self, name: str, at: str, planned: bool = False) -> dict[str, Any] | None:
        """A row of the table of estimates; None where an arm has no run.

        With `planned`, by the layout that the plan fixed. A run that diverged is counted and not
        averaged, and a difference from it is undecided.
        """
        asked = lookup("question", self.asked.questions, name, "questions.yaml")
        setting = lookup("setting", self.asked.settings, at, "questions.yaml")
        found = self.arms(asked.arms, setting)
        corners = self.arms(asked.layout, setting) if planned and asked.layout else None
        if found is None or (planned and corners is None):
            return None
        study, arms = found
        accuracies = [runs[setting.protocol] for runs in arms.values()]
        values = [accuracy.dropna() for accuracy in accuracies]
        diverged = sum(map(len, accuracies)) - sum(map(len, values))
        estimate = _estimate(values, asked.rule)
        if corners is not None:
            columns = {arm: runs[setting.protocol] for arm, runs in corners[1].items()}
            signs = dict(zip(asked.arms, SIGNS, strict=False))
            estimate = statistics.layout(pd.DataFrame(columns), signs)
        one = len(arms) == 1
        verdict = "" if one else "undecided" if diverged else statistics.verdict(estimate)
        return {
            "kind": "cell" if one else "contrast",
            "question": name,
            "setting": at,
            "protocol": setting.protocol,
            **estimate._asdict(),
            "level": statistics.LEVEL,
            "sd": float(values[0].std()) if one else math.nan,
            "paper": self.paper(asked, setting),
            "verdict": verdict,
            "note": f"{diverged} diverged" if diverged else "",
            "since": asked.since,
            "study": study,
            "precisions": " ".join(
                sorted({p for runs in arms.values() for p in runs["precision"]})
            ),
        }

    def paper(self, asked: Question, setting: Setting) -> float | None:
        """The paper's mean or difference; None where it does not print each arm."""
        total = 0.0
        for sign, arm in zip(SIGNS, asked.arms, strict=False):
            method, *rest = arm.split(".")
            buffer = setting.buffer if "B" in rest else 0
            variant = ".".join(part for part in rest if part not in {"B", "0"})
            place = (setting.benchmark, method, variant, buffer, setting.protocol)
            if place not in self.printed:
                return None
            total += sign * self.printed[place]
        return total

    def table(self) -> pd.DataFrame:
        """All estimates that a table shows, the plan's own rule first."""
        rows = [
            {"table": name} | row
            for name, shown in self.asked.tables.items()
            for question in shown.questions
            for setting in shown.settings
            for planned in (True, False)
            if (row := self.estimate(question, setting, planned)) is not None
        ]
        return pd.DataFrame(rows)

    def markdown(self, name: str) -> str:
        """A table as a page shows it."""
        shown = lookup("table", self.asked.tables, name, "questions.yaml")
        settings = {at: self.asked.settings[at] for at in shown.settings}
        rows = []
        for question in shown.questions:
            asked = self.asked.questions[question]
            cells = {"": asked.title}
            for at, setting in settings.items():
                row = self.estimate(question, at)
                cells[setting.title] = "—" if row is None else _cell(row, setting, shown.beside)
            if shown.paper:
                any_setting = next(s for s in settings.values() if s.benchmark == shown.paper)
                printed = self.paper(asked, any_setting)
                cells["the paper"] = "" if printed is None else f"{printed:.2f}"
            rows.append(cells)
        return show.markdown(rows)

    def shares(self, question: str, at: str) -> pd.DataFrame:
        """By seed: the distance's share of TwF's loss, and what propagation adds."""
        found = self.arms(self.asked.questions[question].arms, self.asked.settings[at])
        if found is None:
            return pd.DataFrame({"share": [], "gain": []})
        new, baseline = found[1].values()
        gain = new["class-il"] - baseline["class-il"]
        return pd.DataFrame({"share": new["share"], "gain": gain}).dropna()

    def filled(self, page: str) -> str:
        """A page whose marked parts say what the evidence says.

        `<!-- table NAME -->...<!-- end -->` holds a table, and `<!-- QUESTION SETTING FORMAT -->`
        a number: `mean` or `full` (with the interval), with one digit after `1`.
        """

        def part(match: re.Match[str]) -> str:
            words = match[1].split()
            if words[0] == "table":
                return f"<!-- {match[1]} -->\n{self.markdown(words[1])}<!-- end -->"
            question, at, form = words[:3]
            row = self.estimate(question, at, "planned" in words)
            if row is None or not row["n"]:
                raise UserError(f"{match[1]}: no records for {question} at {at}")
            text = _number(row, form == "full", 1 if "1" in words[3:] else 2)
            return f"<!-- {match[1]} -->{text}<!-- end -->"

        return BLOCK.sub(part, page)


def _final(row: dict[str, Any], column: str) -> float:
    return final_average_accuracy(row[column]) if row["status"] == "finished" else math.nan


def _share(history: list[dict[str, Any]]) -> float:
    """The part that the weighted distance has in the loss, averaged over epochs."""
    parts = [dict(epoch["terms"]).get("distance", 0.0) / epoch["loss"] for epoch in history]
    return sum(parts) / len(parts) if parts else math.nan


def _estimate(values: list[pd.Series], rule: str) -> statistics.Estimate:
    if len(values) == 1:
        return statistics.cell(values[0])
    if len(values) == 4:
        values = [values[0] - values[1], values[2] - values[3]]
    return statistics.welch(*values) if rule == "welch" else statistics.paired(*values)


def _number(row: dict[str, Any], full: bool, digits: int = 2) -> str:
    """A mean as text, with its interval if asked for and there."""
    text = f"{row['mean']:.{digits}f}"
    if full and not math.isnan(row["low"]):
        text += f" ({row['low']:.{digits}f} to {row['high']:.{digits}f})"
    return text.replace("-", "\N{MINUS SIGN}")


def _cell(row: dict[str, Any], setting: Setting, beside: bool) -> str:
    text = _number(row, row["kind"] == "contrast") if row["n"] else "—"
    if not math.isnan(row["sd"]):
        text += f" ± {row['sd']:.2f}"
    if row["n"] == 1:
        text += " (one seed)"
    if row["note"]:
        text += f" ({row['note']})"
    if row["study"] != setting.files[0]:
        text += " ‡"
    if " " in row["precisions"] and row["kind"] == "contrast":
        text += " †"
    if beside and row["paper"] is not None:
        text += f"<br>paper {row['paper']:.2f}".replace("-", "\N{MINUS SIGN}")
    return text
