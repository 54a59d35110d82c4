"""The findings: from `results/evidence` to estimates and tables.

`questions.yaml` there says what is compared. Nothing here knows a study, a method or a benchmark.
"""

import math
import re
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import ValidationError

from twf.errors import UserError, explain, invalid_file, lookup
from twf.learning.evaluation.metrics import final_average_accuracy, forgetting
from twf.results import record, show, statistics
from twf.results.estimates import probed, spread
from twf.results.evidence import EVIDENCE, read_table
from twf.results.frame import column
from twf.results.paper import claims as paper_claims
from twf.results.printed import CellKey, printed, printed_keys
from twf.results.record import LAYERS, PROBED
from twf.study.params import PROTOCOLS, Protocol
from twf.study.reading import plain_values
from twf.study.types import Strict

Since = Literal["", "planned", "exploratory", "before the plan"]
KEPT = ["benchmark", "source", "method", "initial_class_il", *PROBED]
KEPT += [column("accuracy", protocol) for protocol in PROTOCOLS]
MEASURES = {"faa": final_average_accuracy, "ff": forgetting}  # of a matrix of accuracies
BLOCK = re.compile(r"<!-- ([a-z][^>]*?) -->(.*?)<!-- end -->", flags=re.S)


class Setting(Strict):
    """Where a question is asked: a benchmark, a buffer, and the tables of records to look in."""

    title: str
    benchmark: str
    buffer: int
    protocol: Protocol = "class-il"
    measure: Literal["faa", "ff"] = "faa"  # final average accuracy, or forgetting
    files: list[str]  # arms are of the first that has all
    since: Since = ""  # of all questions here, whatever is said of them

    @property
    def column(self) -> str:
        """The column of `Findings.records` that is asked for."""
        return column(self.measure, self.protocol)


class Question(Strict):
    """A mean (one arm), a difference (two), or a difference of differences (four)."""

    title: str
    arms: list[str]
    rule: Literal["student", "paired", "welch"] = "student"
    # the corners of a two-way layout of docs/plan.md, for a second interval
    layout: Sequence[str] = ()
    since: Since = ""


class Shown(Strict):
    """Questions by settings, as a table or a drawing shows them."""

    questions: list[str]
    settings: list[str]
    kind: Literal["table", "gates", "scale", "share"] = "table"
    paper: str | None = None  # a last column: the paper's numbers of this benchmark
    beside: bool = False  # the paper's number within each cell
    hollow: Sequence[str] = ()  # the questions whose points are not filled


class Claimed(Strict):
    """The records that the paper's claims are evaluated on."""

    file: str
    sources: dict[str, str]  # the paper's source that one stands for
    variants: dict[str, str]  # what the claims call a method as it is
    class_il: list[str]  # the variants of which the paper speaks under Class-IL alone


class Questions(Strict):
    """The whole of `questions.yaml`."""

    settings: dict[str, Setting]
    questions: dict[str, Question]
    tables: dict[str, Shown]
    figures: dict[str, Shown]
    curves: dict[str, Shown]
    claims: Claimed


class Findings:
    """The evidence of a folder and its questions."""

    def __init__(self, folder: Path = EVIDENCE) -> None:
        path = folder / "questions.yaml"
        if not path.exists():
            raise UserError(f"no {path} in {Path.cwd()}: go to the project's folder")
        values = plain_values(path.read_text(encoding="utf-8"), path)
        try:
            self.asked = Questions.model_validate(values)
        except ValidationError as error:
            raise invalid_file(path, explain(error)) from None
        self.records = cache(lambda study: _cells(folder / f"{study}.parquet"))
        # the numbers from SVHN are beside no question
        numbers = printed().drop("svhn", level="source").droplevel("source")
        self.printed = {measure: numbers[measure].dropna().to_dict() for measure in MEASURES}

    def arms(self, arms: Sequence[str], setting: Setting) -> tuple[str, dict[str, pd.DataFrame]]:
        """The first study that has all arms, and the runs of each; empty where none has.

        A mean under Task-IL is of the runs with hyperparameters for Task-IL, if there are any.
        """
        for study in setting.files:
            records = self.records(study)
            cells = [f"{setting.benchmark}.{a.replace('.B', f'.{setting.buffer}')}" for a in arms]
            if len(arms) == 1 and f"{cells[0]}.{setting.protocol}" in records:
                cells = [f"{cells[0]}.{setting.protocol}"]
            if all(cell in records for cell in cells):
                return study, {a: records[cell] for a, cell in zip(arms, cells, strict=True)}
        return "", {}

    def estimate(self, name: str, at: str, layout: bool = False) -> dict[str, Any] | None:
        """A row of the table of estimates; None where an arm has no run.

        By the question's rule, or its two-way layout. A seed counts where all arms have it. A run
        that diverged is counted and not averaged, and a difference from it is undecided.
        """
        asked = lookup("question", self.asked.questions, name, "questions.yaml")
        setting = lookup("setting", self.asked.settings, at, "questions.yaml")
        study, arms = self.arms(asked.layout if layout else asked.arms, setting)
        if not arms:
            return None
        diverged = sum(int(runs[setting.column].isna().sum()) for runs in arms.values())
        shared = {a: runs[setting.column] for a, runs in arms.items()}
        values = pd.concat(shared, axis=1, join="inner").sort_index()
        if layout:
            signs = dict(zip(asked.arms, statistics.SIGNS, strict=False))
            estimate = statistics.layout(values, signs)
        else:
            estimate = statistics.of_arms([values[a] for a in arms], asked.rule)
        one = len(arms) == 1
        verdict = "" if one else "undecided" if diverged else statistics.verdict(estimate)
        return {
            **{"kind": "cell" if one else "contrast", "question": name, "setting": at},
            "protocol": setting.protocol,
            **estimate._asdict(),
            "level": statistics.LEVEL,
            "sd": float(values.iloc[:, 0].std()) if one else math.nan,
            "paper": self.paper(asked, setting),
            "verdict": verdict,
            "note": f"{diverged} diverged" if diverged else "",
            "since": setting.since or asked.since,
            "study": study,
            "precisions": " ".join(sorted(set(pd.concat(arms.values())["precision"]))),
        }

    def paper(self, asked: Question, setting: Setting) -> float | None:
        """The paper's mean or difference; None where it does not print each arm."""
        total = 0.0
        for sign, arm in zip(statistics.SIGNS, asked.arms, strict=False):
            method, *rest = arm.split(".")
            buffer = setting.buffer if "B" in rest else 0
            variant = ".".join(part for part in rest if part not in {"B", "0"})
            place = (setting.benchmark, method, variant, buffer, setting.protocol)
            if place not in self.printed[setting.measure]:
                return None
            total += sign * self.printed[setting.measure][place]
        return total

    def table(self) -> pd.DataFrame:
        """All estimates of `tables`, by layout and by each question's own rule."""
        rows = [
            {"table": name} | row
            for name, shown in self.asked.tables.items()
            if shown.kind == "table"
            for question in shown.questions
            for setting in shown.settings
            for layout in (True, False)
            if (row := self.estimate(question, setting, layout)) is not None
        ]
        return pd.DataFrame(rows)

    def markdown(self, name: str) -> str:
        """A table as a page shows it."""
        shown = lookup("table", self.asked.tables, name, "questions.yaml")
        settings = {at: self.asked.settings[at] for at in shown.settings}
        if shown.kind == "gates":
            setting = settings[shown.settings[0]]
            return show.markdown([self._gates(question, setting) for question in shown.questions])
        rows = []
        for question in shown.questions:
            asked = self.asked.questions[question]
            cells = {"": asked.title}
            for at, setting in settings.items():
                row = self.estimate(question, at)
                cells[setting.title] = "—" if row is None else _cell(row, setting, shown.beside)
            if shown.paper:
                any_setting = next(s for s in settings.values() if s.benchmark == shown.paper)
                paper = self.paper(asked, any_setting)
                cells["the paper"] = "" if paper is None else f"{paper:.2f}"
            rows.append(cells)
        return show.markdown(rows)

    def _gates(self, question: str, setting: Setting) -> show.TextRow:
        """By layer: per cent of gates open before training and after the last task, over seeds."""
        asked = self.asked.questions[question]
        _, arms = self.arms(asked.arms, setting)
        runs = list(arms[asked.arms[0]]["gates_open"]) if arms else []
        shares = [[of_run[0], of_run[-1]] for of_run in runs if of_run]
        if not shares:
            return {"": asked.title} | dict.fromkeys(LAYERS, "—")
        layers = zip(LAYERS, np.mean(shares, axis=0).T, strict=True)
        return {"": asked.title} | {name: f"{a:.0f} → {b:.0f}" for name, (a, b) in layers}

    def shares(self, question: str, at: str) -> pd.DataFrame:
        """By seed: the distance's `share` of TwF's loss, propagation's `gain`, and the `scale`."""
        columns = ["share", "gain", "scale"]
        setting = self.asked.settings[at]
        _, arms = self.arms(self.asked.questions[question].arms, setting)
        if not arms:
            return pd.DataFrame(columns=columns)
        new, baseline = arms.values()
        gain = new[setting.column] - baseline[setting.column]
        return new.assign(gain=gain)[columns].dropna()

    def curve(self, name: str) -> statistics.Curve:
        """The test whether the gains at the settings of a curve depend on the share alone."""
        shown = lookup("curve", self.asked.curves, name, "questions.yaml")
        points = [self.shares(q, at) for q in shown.questions for at in shown.settings]
        return statistics.one_curve(pd.concat([part for part in points if len(part)]))

    @cached_property
    def claims(self) -> pd.DataFrame:
        """The paper's claims on one study's runs: `name`, `statement`, and what they come to."""
        values: dict[CellKey, pd.Series] = {}
        asked = self.asked.claims
        for cell, runs in self.records(asked.file).items():
            of = runs.iloc[0]
            buffer, source, known = of["buffer"], asked.sources[of["source"]], of["method"]
            variant = ".".join(part for part in cell.split(".")[2:] if part != str(buffer))
            alone = variant in PROTOCOLS  # runs with hyperparameters for one protocol
            names = {variant} if variant and not alone else {"", asked.variants.get(known, "")}
            protocols: Any = [variant] if alone else PROTOCOLS
            for protocol, name in product(protocols, names):
                if name in asked.class_il and protocol != "class-il":
                    continue
                key = CellKey(of["benchmark"], source, known, name, buffer, protocol)
                if alone or key not in values:
                    done = runs[column("faa", key.protocol)].dropna()
                    values[key] = done if len(done) == len(runs) else done[:0]
                    values |= spread(key, runs.loc[values[key].index])
                tasks, phases = map(len, (of["initial_class_il"], of["accuracy_class_il"]))
                for part, at, i, j in probed(key, tasks, phases) if of["cka"] else ():
                    values[part] = pd.Series({s: m[i][j] for s, m in runs[at].items() if m})
        rows = [
            {"name": claim.name, "statement": claim.statement}
            | paper_claims.evaluate(claim, values, printed_keys(), {})
            for claim in paper_claims.load()
        ]
        return pd.DataFrame(rows)

    def filled(self, page: str) -> str:
        """A page whose marked parts say what the evidence says.

        `<!-- table NAME -->...<!-- end -->` holds a table, `<!-- curve NAME -->` a test's result,
        `<!-- claims -->` how many of the paper's claims have each verdict, and `<!-- QUESTION
        SETTING FORMAT -->` a number: `mean` or `full` (with the interval), with one digit after
        `1`, and by the question's layout after `layout`.
        """

        def part(match: re.Match[str]) -> str:
            words = match[1].split()
            if words[0] == "table":
                return f"<!-- {match[1]} -->\n{self.markdown(words[1])}<!-- end -->"
            if words[0] == "curve":
                test = self.curve(words[1])
                p = f"= {test.p:.3f}" if test.p >= 0.001 else "< 0.001"
                text = f"F({test.df}, {test.residual_df}) = {test.f:.1f}, p {p}"
                return f"<!-- {match[1]} -->{text}: *{test.verdict}*<!-- end -->"
            if words[0] == "claims":
                counts = self.claims["verdict"].value_counts()
                verdicts = paper_claims.VERDICTS
                text = ", ".join(f"{counts[name]} *{name}*" for name in verdicts if name in counts)
                return f"<!-- claims -->{text}<!-- end -->"
            if len(words) < 3 or words[2] not in ("mean", "full"):
                raise UserError(f"{match[1]}: a number is marked QUESTION SETTING mean, or full")
            question, at, form = words[:3]
            row = self.estimate(question, at, "layout" in words)
            if row is None or not row["n"]:
                raise UserError(f"{match[1]}: no records for {question} at {at}")
            text = _number(row, form == "full", 1 if "1" in words[3:] else 2)
            text += f" ({row['note']})" if row["note"] else ""
            return f"<!-- {match[1]} -->{text}{_of_precisions(row)}<!-- end -->"

        return BLOCK.sub(part, page)


def _cells(path: Path) -> dict[str, pd.DataFrame]:
    """The runs of each cell of a study by seed: precision, and each of `MEASURES` by protocol.

    In per cent; a run that diverged has none. And the part that the weighted distance has in the
    loss, averaged over epochs; the scale: benchmark, network, epochs and switches; and what records
    have of `KEPT`.
    """
    rows = []
    for row in read_table(path).to_pylist():
        parts = [dict(e["terms"]).get("distance", 0.0) / e["loss"] for e in row["history"]]
        provenance = record.provenance(row)
        parameters = provenance["parameters"]
        by_paper = sorted(s for s, value in parameters["fidelity"].items() if value == "paper")
        scale = [*(parameters[key] for key in ("benchmark", "network", "epochs")), by_paper]
        about = {"cell": row["run"].rpartition(".s")[0], "seed": row["seed"], "scale": str(scale)}
        about |= {"precision": record.precision(provenance), "buffer": row["buffer"] or 0}
        about |= {name: row.get(name) or [] for name in KEPT}
        about |= {"share": sum(parts) / len(parts) if parts else math.nan}
        done = row["status"] == "finished"
        for (name, measure), protocol in product(MEASURES.items(), PROTOCOLS):
            value = measure(row[column("accuracy", protocol)]) if done else None
            about[column(name, protocol)] = math.nan if value is None else value
        rows.append(about)
    frame = pd.DataFrame(rows).set_index("seed").sort_index()
    return {str(cell): runs for cell, runs in frame.groupby("cell")}


def _number(row: dict[str, Any], full: bool, digits: int = 2) -> str:
    """A mean as text, with its interval if asked for and there."""
    text = f"{row['mean']:.{digits}f}"
    if full and not math.isnan(row["low"]):
        text += f" ({row['low']:.{digits}f} to {row['high']:.{digits}f})"
    return text.replace("-", "\N{MINUS SIGN}")


def _of_precisions(row: dict[str, Any]) -> str:
    """The mark of a difference between runs of several precisions."""
    return " †" if " " in row["precisions"] and row["kind"] == "contrast" else ""


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
    text += _of_precisions(row)
    if beside and row["paper"] is not None:
        text += f"<br>paper {row['paper']:.2f}".replace("-", "\N{MINUS SIGN}")
    return text
