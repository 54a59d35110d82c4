"""The report of a study: one HTML file that needs nothing else, on a screen or printed.

It shows what tables, comparison, figures and search have written, and computes no mean, interval or
verdict of its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from markupsafe import Markup

from twf import files
from twf.errors import UserError
from twf.results import cells, provenance, record, search, show, statistics
from twf.results.frame import Results
from twf.results.paper import claim_tests, comparison, gains, order
from twf.results.paper.comparison import MARGIN, VERDICTS
from twf.results.show import PROTOCOL_TITLES, Section, TextRow, in_parentheses, number
from twf.study import Plan
from twf.study.params import PROTOCOLS, Params

TEXT = 40  # characters; a column with a longer text may have several lines

# What the groups of claims are about
ABOUT = {
    "performance": "how well TwF does",
    "mechanism": "why it does",
    "incidental": "other methods",
}

# The verdicts on claims, in the order in which they are shown
SHOWN = ("holds", "control passes", "smaller", "does not hold", "undecided", "not run")


def write(params: Params, results: Results) -> None:
    """Write the report of a study, and its reproducibility statement, from what was written before.

    Raises `UserError` that names the command where tables or comparison have not been made, or a
    figure or a file was removed; without a list of figures, the page says so.
    """
    plan, study = results.plan, results.plan.study
    written = cells.of_results(results)
    compared, claims, gained, ranked = (
        part.COMPARED.read(plan) for part in (comparison, claim_tests, gains, order)
    )
    agreed = agreement(compared, claims)
    told = provenance.write(params, results, agreed)
    statement = files.statement_file(study)
    figures, script = _figures(study), _source("report.js")
    scores = results.scores.to_dict("index")
    tables = [
        cells.layout(table, written[written["table"] == name])
        | {
            "title": table.title,
            "main": table.experiment == next(iter(plan.tables.values())).experiment,
            "gains": gains.text_rows(table, gained[gained["table"] == name], Markup),
            "model": gains.model(table),
            "figures": [f for f in figures if f["table"] == name],
        }
        for name, table in plan.tables.items()
    ]
    numbers = [
        {"Table": str(table)} | text | {"Command": _folded(text["Command"])}
        for table, text in zip(
            compared["printed_table"], comparison.text_rows(compared), strict=True
        )
    ]
    run = claims["verdict"] != "not run"
    folded = {
        "claims": ("claims that these runs do not test", _by_verdict(claims[~run])),
        "comparison": ("numbers of the paper, and the commands that measure them", numbers),
    }
    page = _environment.get_template("report.html.j2").render(
        made_by=Markup(record.REPORT_MARK.format(record.collected_plan(study))),  # noqa: S704
        title=plan.title,
        study=study,
        note=plan.note,
        style=_source("report.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        facts=provenance.facts(results),
        agreement=agreed,
        unfinished=provenance.unfinished(results),
        drawn=files.figure_index(study).exists(),
        tables=tables,
        in_all=_in_all([[table["caption"], *table["remarks"]] for table in tables]),
        gains=gains.COMPARED.note,
        paper={
            "claims": Section(
                "The paper's claims", _by_verdict(claims[run]), claim_tests.COMPARED.note
            ),
            "order": Section("The order of methods", order.text_rows(ranked), order.COMPARED.note),
            "comparison": Section("Beside the paper", [], comparison.COMPARED.note),
            "searched": Section(
                "Hyperparameters searched for", search.text_rows(search.read(plan)), search.NOTE
            ),
        },
        folded={name: of for name, of in folded.items() if of[1]},
        runs=[_run(plan, str(run), row, scores) for run, row in results.runs.iterrows()],
        forgetting=cells.FORGETTING[params.switches(study)["F8"]],
        provenance=told,
        statement=_download(f"{study}-{statement.name}", statement.read_bytes(), "markdown"),
        downloads=[
            _download(f"{study}-runs.csv", _accuracies(results)),
            *(
                _download(f"{study}-{path.name}", _content(path, study))
                for path in [
                    *(files.table_file(study, name, "csv") for name in plan.tables),
                    *(made(study, "csv") for made in (files.comparison_file, files.gains_file)),
                ]
            ),
        ],
    )
    with files.atomic(files.report_file(study)) as partial:
        partial.write_text(page, encoding="utf-8")


def agreement(compared: pd.DataFrame, claims: pd.DataFrame) -> list[str]:
    """What the comparison with the paper and its claims come to, in sentences."""
    verdicts = Counter(compared["verdict"])
    counts = {verdict: verdicts[verdict] for verdict in VERDICTS}
    measured = len(compared) - counts["not run"]
    of_claims = [_counted(group, claims[claims["group"] == group]) for group in ABOUT]
    if not measured:
        none = f"None of the {len(compared)} numbers that the paper prints has been measured yet."
        return [none, *of_claims]
    at_scale = []
    if counts["reduced"]:
        at_scale = [
            f"Of the {len(compared)} numbers that the paper prints, {counts['reduced']} have been "
            "measured at reduced scale, where a difference says nothing of the paper's number."
        ]
    at_its_own = measured - counts["reduced"]
    if not at_its_own:
        return [*at_scale, *of_claims]
    spreads = compared.loc[compared["verdict"] != "reduced", "faa_std"].dropna()
    seeds = []
    if len(spreads):  # a cell has two seeds
        seeds = [
            f"With a standard deviation of {median(spreads):.2f} points, the median of these "
            "cells', agreement is found in 80 % of cases with "
            f"{statistics.seeds_needed(median(spreads), MARGIN)} seeds, if our true mean is the "
            "paper's number."
        ]
    return [
        *at_scale,
        f"Of the {len(compared)} numbers that the paper prints, {at_its_own} have been measured"
        + " at its own scale" * bool(at_scale)
        + ".",
        f"In agreement: {counts['equivalent']}, where the 95 % interval of our mean lies within "
        f"{MARGIN:g} points of the paper's number.",
        f"Not in agreement: {counts['higher'] + counts['lower']}, ours higher in "
        f"{counts['higher']} and lower in {counts['lower']}.",
        f"Undecided: {counts['undecided']}, as the interval is too wide, there is none with a "
        "single seed, or a run diverged.",
        *seeds,
        *of_claims,
    ]


def _accuracies(results: Results) -> bytes:
    """Final average accuracy and forgetting of each run under each protocol, as CSV."""
    return bytes(results.scores[["faa", "ff"]].reset_index().to_csv(index=False).encode())


def _in_all(remarks: list[list[str]]) -> list[str]:
    """What is said of each of several tables, in order: it is said once."""
    first, *others = remarks or [[]]
    return [text for text in first if others and all(text in other for other in others)]


def _by_verdict(claims: pd.DataFrame) -> list[TextRow]:
    """The claims as text, the verdict first and in its colour; what is decided goes first."""
    rows = sorted(
        zip(claims["verdict"], claim_tests.text_rows(claims), strict=True),
        key=lambda row: SHOWN.index(row[0]),
    )
    return [
        {
            "Verdict": Markup('<span class="verdict {}">{}</span>').format(
                verdict.replace(" ", "-"), verdict
            )
        }
        | {name: text for name, text in texts.items() if name != "Verdict"}
        for verdict, texts in rows
    ]


def _counted(group: str, claims: pd.DataFrame) -> str:
    """How many claims of a group have each verdict, as a sentence."""
    counts = claims["verdict"].value_counts()
    said = [f"{verdict} {counts[verdict]}" for verdict in SHOWN if verdict in counts]
    return f"The paper's claims on {ABOUT[group]} ({len(claims)}): {', '.join(said)}."


def columns(rows: Sequence[TextRow]) -> dict[str, str]:
    """The class of each column of a table, by its heading: number, text or none."""
    numbers = show.numeric(rows)
    texts = {
        name: [row[name] for row in rows if not isinstance(row[name], Markup)] for name in rows[0]
    }
    wide = {name for name, column in texts.items() if any(len(text) > TEXT for text in column)}
    return {n: "number" if n in numbers else "text" if n in wide else "" for n in rows[0]}


_environment = show.environment(html=True)
_environment.filters["columns"] = columns


def _source(name: str) -> Markup:
    """A file of this package that goes into the page as it is."""
    return Markup((Path(__file__).parent / "templates" / name).read_text(encoding="utf-8"))  # noqa: S704


def _folded(command: str) -> str:
    """A command that opens on a click."""
    if command == "—":
        return command
    return Markup(
        '<details><summary>command</summary><div class="command"><code>{}</code></div></details>'
    ).format(command)


def _download(name: str, content: bytes, kind: str = "csv") -> Markup:
    """A link to a file that is in the page."""
    encoded = base64.b64encode(content).decode()
    return Markup('<a download="{0}" href="data:text/{1};charset=utf-8;base64,{2}">{0}</a>').format(
        name, kind, encoded
    )


def _content(path: Path, study: str) -> bytes:
    """A file that belongs to those that have been read; `UserError` where it was removed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"no {path}: `twf report {study} --partial` makes it anew") from None


def _figures(study: str) -> list[dict[str, Any]]:
    """A study's figures, as far as they have been made."""
    index = files.figure_index(study)
    shown = []
    listed = pd.read_csv(index, keep_default_na=False) if index.exists() else pd.DataFrame()
    for row in show.rows(listed):
        drawing, data = (files.figure_file(study, row["figure"], of) for of in ("svg", "csv"))
        svg = _content(drawing, study).decode()
        shown.append(
            {
                "table": row["table"],
                # Text from data is escaped in it, and no script of it would be run.
                "svg": Markup(svg[svg.index("<svg") :]),  # noqa: S704
                "data": _download(data.name, _content(data, study)),
            }
        )
    return shown


def _run(plan: Plan, run: str, row: Any, scores: Mapping[Any, Any]) -> TextRow:
    """A planned run, with or without a record, as a row; `scores` by run and protocol."""
    planned = plan.runs[run]
    said = {"parameters": json.loads(planned.parameters)} | row["provenance"]
    details = {name.capitalize(): _lines(values) for name, values in said.items()}
    if row["started"]:
        details["Started"] = f"{row['started']:%Y-%m-%d %H:%M} UTC"
    if not pd.isna(row["peak_memory_mib"]):
        details["Peak memory"] = f"{row['peak_memory_mib']:.0f} MiB"
    details["Command"] = f"twf run {planned.study} {run}"
    details["Log"] = str(files.log_file(planned.study, run))
    opened = _environment.get_template("report_run.html.j2")
    of_run = {protocol: scores.get((run, protocol), {}) for protocol in PROTOCOLS}
    return {
        "Run": Markup(opened.render(run=run, details=details, reason=row["reason"])),  # noqa: S704
        "Status": Markup('<span class="{0}">{0}</span>').format(row["status"]),
        "Seed": str(planned.seed),
        **{
            PROTOCOL_TITLES[p]: f"{number(of.get('faa'))} {in_parentheses(of.get('ff'))}".rstrip()
            for p, of in of_run.items()
        },
        "Seconds": "—" if pd.isna(row["seconds"]) else f"{row['seconds']:.1f}",
        "Device": row["device"] or "—",
    }


def _lines(values: Any) -> str:
    """What a provenance has under one name as text: a line for each of its values."""
    if not isinstance(values, dict):
        return json.dumps(values, ensure_ascii=False)
    lines = (f"{key}: {json.dumps(v, ensure_ascii=False)}" for key, v in sorted(values.items()))
    return "\n".join(lines)
