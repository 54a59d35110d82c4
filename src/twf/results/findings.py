"""The findings: from `results/evidence` to estimates and tables.

`questions.yaml` there says what is compared. Nothing here knows a study, a method or a benchmark.
"""

import json
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field, ValidationError

from twf.errors import UserError, explain, invalid_file, lookup
from twf.learning.evaluation.metrics import final_average_accuracy
from twf.results import show, statistics
from twf.results.evidence import EVIDENCE, read_table
from twf.results.frame import column
from twf.results.printed import printed_keys
from twf.results.statistics import Estimate
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
    files: Annotated[list[str], Field(min_length=1)]  # an arm is of the first that has it


class Question(Strict):
    """A mean (one arm), a difference (two), or a difference of differences (four)."""

    title: str
    arms: Annotated[list[str], Field(min_length=1, max_length=4)]
    rule: Literal["student", "paired", "welch"] = "student"
    # the corners of the two-way layout by which docs/plan.md asked, whose interval is shown first
    layout: list[str] | None = None
    since: Literal["planned", "exploratory"] | None = None


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
        self.scores: dict[str, pd.DataFrame] = {}
        self.printed = {
            (key.benchmark, key.method, key.variant, key.buffer, key.protocol): number
            for key, number in printed_keys().items()
            if key.source != "svhn"
        }

    def records(self, study: str) -> pd.DataFrame:
        """The records of a study by seed: cell, precision, the distance's share of the loss.

        And final average accuracy in per cent, by protocol; none of a run that diverged.
        """
        if study not in self.scores:
            rows = read_table(self.folder / f"{study}.parquet").to_pylist()
            self.scores[study] = (
                pd.DataFrame(
                    {"cell": row["run"].rpartition(".s")[0], "seed": row["seed"]}
                    | {p: _final(row, column("accuracy", p)) for p in PROTOCOLS}
                    | {"share": _share(row["history"])}
                    | {"precision": str(json.loads(row["provenance"])["precision"])}
                    for row in rows
                )
                .set_index("seed")
                .sort_index()
            )
        return self.scores[study]

    def arms(
        self, arms: list[str], setting: Setting, tuned: bool = False
    ) -> tuple[list[pd.DataFrame], str] | None:
        """The runs of each arm by seed, and the study that has all; None where none has.

        With `tuned`, of the first arm the runs with hyperparameters for Task-IL, if there are any.
        """
        cells = [f"{setting.benchmark}.{arm.replace('.B', f'.{setting.buffer}')}" for arm in arms]
        for study in setting.files:
            by_cell = dict(list(self.records(study).groupby("cell")))
            runs = [by_cell.get(cell) for cell in cells]
            if tuned:
                runs[0] = by_cell.get(f"{cells[0]}.task-il", runs[0])
            there = [of_arm for of_arm in runs if of_arm is not None]
            if len(there) == len(cells):
                return there, study
        return None

    def estimate(self, name: str, at: str, planned: bool = False) -> dict[str, Any] | None:
        """A row of the table of estimates; None where an arm has no run.

        With `planned`, by the layout that the plan fixed. A run that diverged is counted and not
        averaged, and a difference from it is undecided.
        """
        asked = lookup("question", self.asked.questions, name, "questions.yaml")
        setting = lookup("setting", self.asked.settings, at, "questions.yaml")
        one = len(asked.arms) == 1
        found = self.arms(asked.arms, setting, one and setting.protocol == "task-il")
        corners = self.arms(asked.layout, setting) if planned and asked.layout else None
        if found is None or (planned and corners is None):
            return None
        arms, study = found
        accuracies = [arm[setting.protocol].astype(float) for arm in arms]
        values = [accuracy.dropna() for accuracy in accuracies]
        diverged = sum(map(len, accuracies)) - sum(map(len, values))
        if corners is not None:
            named = zip(asked.layout or [], corners[0], strict=True)
            columns = {corner: runs[setting.protocol].astype(float) for corner, runs in named}
            signs = dict(zip(asked.arms, SIGNS, strict=False))
            estimate = statistics.layout(pd.DataFrame(columns), signs)
        else:
            estimate = _estimate(values, asked.rule)
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
            "since": asked.since or "",
            "study": study,
            "precisions": " ".join(sorted({p for arm in arms for p in arm["precision"]})),
        }

    def paper(self, asked: Question, setting: Setting) -> float | None:
        """The paper's mean or difference; None where it does not print each arm."""
        numbers = []
        for arm in asked.arms:
            method, *rest = arm.split(".")
            buffer = {"B": setting.buffer}.get(rest.pop(0), 0) if rest else 0
            place = (setting.benchmark, method, ".".join(rest), buffer, setting.protocol)
            numbers.append(self.printed.get(place))
        if None in numbers:
            return None
        return sum(sign * n for sign, n in zip(SIGNS, numbers, strict=False) if n is not None)

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
                number = self.paper(asked, any_setting)
                cells["the paper"] = "" if number is None else f"{number:.2f}"
            rows.append(cells)
        return show.markdown(rows)

    def shares(self, question: str, at: str) -> pd.DataFrame:
        """By seed: the distance's share of TwF's loss, and what propagation adds."""
        found = self.arms(self.asked.questions[question].arms, self.asked.settings[at])
        if found is None:
            return pd.DataFrame({"share": [], "gain": []})
        (new, baseline), _ = found
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
            text = number(row, form, 1 if "1" in words[3:] else 2)
            return f"<!-- {match[1]} -->{text}<!-- end -->"

        return BLOCK.sub(part, page)


def _final(row: dict[str, Any], column: str) -> float | None:
    return final_average_accuracy(row[column]) if row["status"] == "finished" else None


def _share(history: list[dict[str, Any]]) -> float:
    """The part that the weighted distance has in the loss, averaged over epochs."""
    parts = [dict(epoch["terms"]).get("distance", 0.0) / epoch["loss"] for epoch in history]
    return sum(parts) / len(parts) if parts else math.nan


def _estimate(values: list[pd.Series], rule: str) -> Estimate:
    if len(values) == 1:
        return statistics.cell(values[0])
    if len(values) == 4:
        first, second, third, fourth = values
        return statistics.paired(first - second, third - fourth)
    return statistics.welch(*values) if rule == "welch" else statistics.paired(*values)


def number(row: dict[str, Any], form: str, digits: int = 2) -> str:
    """An estimate as text: `mean`, or `full` with its interval where it has one."""
    text = f"{row['mean']:.{digits}f}"
    if form == "full" and not math.isnan(row["low"]):
        text += f" ({row['low']:.{digits}f} to {row['high']:.{digits}f})"
    return text.replace("-", "\N{MINUS SIGN}")


def _cell(row: dict[str, Any], setting: Setting, beside: bool) -> str:
    if row["kind"] == "cell" and not math.isnan(row["sd"]):
        text = f"{row['mean']:.2f} ± {row['sd']:.2f}"
    else:
        text = number(row, "full" if row["kind"] == "contrast" else "mean")
    if row["n"] == 0:
        text = "—"
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
