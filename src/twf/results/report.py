"""The report of a study: one HTML file that needs nothing else, on a screen or printed.

It renders the study's estimates, and computes no mean, interval or verdict of its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from twf import files
from twf.errors import note
from twf.results import estimates, figures, provenance, record, search, show, tables
from twf.results.figures import Drawn
from twf.results.frame import Results
from twf.results.paper import claims
from twf.results.printed import PLACE
from twf.results.show import PROTOCOL_TITLES, Section, TextRow, in_parentheses, number
from twf.study import Plan
from twf.study.params import PROTOCOLS, Params

TEXT = 40  # characters; a column with a longer text may have several lines

GAINS = (
    "Gains are differences of final average accuracy in percentage points, with a 95 % interval: "
    "Welch's between methods, and Student's by seed between variants of a method, over the seeds "
    "that both have finished (n=a/b: a of b). Intervals are not corrected for their number. †: of "
    "runs that differ in precision; paper: the same difference of its numbers."
)
CLAIMS = (
    "Each claim says that some differences between cells are positive, or means of them; “ours” is "
    "the least of these, with its 95 % interval. A claim holds where the interval lies above 0 and "
    "nothing is missing, and does not hold where the interval lies below 0: for one claim, each of "
    "these is wrong in at most 2.5 % of cases."
)
ORDER = (
    "Kendall's rank correlation of our means with the paper's numbers, over the methods with a "
    "number in both but Joint: 1 where the order is the same, -1 where it is reversed; in "
    "parentheses, its 95 % interval over our true means."
)
COMPARISON = (
    "The paper's final average accuracies beside ours, in per cent. Equivalent: the 95 % interval "
    f"of our mean lies within {estimates.MARGIN:g} points of the paper's number; higher or lower: "
    "entirely above or below these; undecided: otherwise, with a single seed or where a run "
    "diverged; reduced: the study scales the benchmark down."
)


def write_all(params: Params, results: Results) -> None:
    """Make all that a study's records give: estimates, tables, figures, statement, report."""
    plan = results.plan
    note(f"{plan.study}: estimates and tables")
    frame = estimates.of_study(results)
    estimates.write(results, frame)
    of_cells = frame[frame["kind"] == "cell"]
    tables.write(results, of_cells, plan.tables.values())
    tables.write_metrics(plan, frame)
    trials = search.write(results) if plan.search else search.trials(results)
    drawn = figures.write(results, frame)
    note(f"{plan.study}: the report")
    write(params, results, frame, trials, drawn)


def write(
    params: Params,
    results: Results,
    frame: pd.DataFrame,
    trials: pd.DataFrame,
    drawn: Sequence[Drawn],
) -> None:
    """Write the report of a study, and its reproducibility statement.

    From its estimates, the trials of its searches, and its figures.
    """
    plan, study = results.plan, results.plan.study
    of_cells, gains, claimed, ranked = (
        frame[frame["kind"] == kind] for kind in ("cell", "gain", "claim", "order")
    )
    agreed = agreement(of_cells, claimed)
    told = provenance.write(params, results, agreed)
    statement = files.statement_file(study)
    script = _source("report.js")
    scores = results.scores.to_dict("index")
    shown = [
        tables.layout(table, of_cells)
        | {
            "title": table.title,
            "main": table.experiment == next(iter(plan.tables.values())).experiment,
            "gains": tables.gain_rows(table, gains, Markup),
            "model": tables.rule(table),
            "figures": [_figure(study, figure) for figure in drawn if figure.table == name],
        }
        for name, table in plan.tables.items()
    ]
    run = claimed["verdict"] != "not run"
    folded = {
        "claims": ("claims that these runs do not test", _by_verdict(claimed[~run])),
        "comparison": ("numbers of the paper beside ours", _beside_paper(of_cells)),
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
        tables=shown,
        in_all=_in_all([[table["caption"], *table["remarks"]] for table in shown]),
        gains=GAINS,
        paper={
            "claims": Section("The paper's claims", _by_verdict(claimed[run]), CLAIMS),
            "order": Section("The order of methods", _orders(ranked), ORDER),
            "comparison": Section("Beside the paper", [], COMPARISON),
            "searched": Section(
                "Hyperparameters searched for", search.text_rows(trials), search.NOTE
            ),
        },
        folded={name: of for name, of in folded.items() if of[1]},
        runs=[_run(plan, str(run), row, scores) for run, row in results.runs.iterrows()],
        forgetting=tables.FORGETTING[params.switches(study)["F8"]],
        provenance=told,
        statement=_download(f"{study}-{statement.name}", statement.read_bytes(), "markdown"),
        downloads=[
            _download(f"{study}-runs.csv", _accuracies(results)),
            _download(f"{study}-estimates.csv", files.estimates_file(study, "csv").read_bytes()),
        ],
    )
    with files.atomic(files.report_file(study)) as partial:
        partial.write_text(page, encoding="utf-8")


def agreement(of_cells: pd.DataFrame, claimed: pd.DataFrame) -> list[str]:
    """What the comparison with the paper and its claims come to, in sentences."""
    compared = _compared(of_cells)
    counts = Counter(compared["verdict"])
    measured = len(compared) - counts["not run"]
    of_claims = [_counted(group, claimed[claimed["group"] == group]) for group in claims.ABOUT]
    if not measured:
        none = "None of the numbers that the paper prints has been measured yet."
        return [none, *of_claims]
    sentences = []
    if counts["reduced"]:
        sentences.append(
            f"{counts['reduced']} of the numbers that the paper prints have been measured at "
            "reduced scale, where a difference says nothing of the paper's number."
        )
    if at_its_own := measured - counts["reduced"]:
        differ = counts["higher"] + counts["lower"]
        sentences += [
            f"Of {at_its_own} numbers of the paper that were measured at its own scale, "
            f"{counts['equivalent']} agree: the 95 % interval of our mean lies within "
            f"{estimates.MARGIN:g} points of the paper's number.",
            f"{differ} do not agree, ours higher in {counts['higher']} and lower in "
            f"{counts['lower']}; {counts['undecided']} are undecided, as the interval is too wide, "
            "there is none with a single seed, or a run diverged.",
        ]
    return [*sentences, *of_claims]


def _compared(of_cells: pd.DataFrame) -> pd.DataFrame:
    """The cells beside which the paper has a number, each once."""
    beside = of_cells[(of_cells["quantity"] == "faa") & of_cells["paper"].notna()]
    return beside.drop_duplicates(PLACE)


def _beside_paper(of_cells: pd.DataFrame) -> list[TextRow]:
    """The paper's numbers beside ours, as text."""
    return [
        {
            "Cell": row["title"],
            "Benchmark": f"{row['benchmark']} from {row['source']}",
            "Protocol": PROTOCOL_TITLES[row["protocol"]],
            "Buffer": str(row["buffer"] or "—"),
            "Paper": number(row["paper"]),
            "Ours": number(row["mean"]),
            "Interval": show.interval(row["low"], row["high"]),
            "n": f"{row['n']}/{row['n_planned']}",
            "Verdict": row["verdict"],
        }
        for row in show.rows(_compared(of_cells))
    ]


def _orders(ranked: pd.DataFrame) -> list[TextRow]:
    return [
        {
            "Benchmark": f"{row['benchmark']} from {row['source']}",
            "Protocol": PROTOCOL_TITLES[row["protocol"]],
            "Buffer": str(row["buffer"]),
            "Over": f"{row['n']} {row['name'].removeprefix('all ')}",
            "Kendall's tau": show.estimate(row["mean"], row["low"], row["high"]),
        }
        for row in show.rows(ranked)
    ]


def _accuracies(results: Results) -> bytes:
    """Final average accuracy and forgetting of each run under each protocol, as CSV."""
    return bytes(results.scores[["faa", "ff"]].reset_index().to_csv(index=False).encode())


def _in_all(remarks: list[list[str]]) -> list[str]:
    """What is said of each of several tables, in order: it is said once."""
    first, *others = remarks or [[]]
    return [text for text in first if others and all(text in other for other in others)]


def _by_verdict(claimed: pd.DataFrame) -> list[TextRow]:
    """The claims as text, the verdict first and in its colour; what is decided goes first."""
    order = sorted(show.rows(claimed), key=lambda row: claims.VERDICTS.index(row["verdict"]))
    return [
        {
            "Verdict": Markup('<span class="verdict {}">{}</span>').format(
                row["verdict"].replace(" ", "-"), row["verdict"]
            ),
            "Claim": row["title"],
            "Paper": number(row["paper"], "+"),
            "Ours": f"{show.estimate(row['mean'], row['low'], row['high'])} {row['quantity']}",
            "Seeds": str(row["n"]),
            "Remark": row["note"],
        }
        for row in order
    ]


def _counted(group: str, claimed: pd.DataFrame) -> str:
    """How many claims of a group have each verdict, as a sentence."""
    counts = Counter(claimed["verdict"])
    said = [f"{verdict} {counts[verdict]}" for verdict in claims.VERDICTS if counts[verdict]]
    return f"The paper's claims on {claims.ABOUT[group]} ({len(claimed)}): {', '.join(said)}."


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


def _figure(study: str, figure: Drawn) -> dict[str, Any]:
    """A figure for the page. Text from data is escaped in it, and no script of it would be run."""
    data = files.figure_file(study, figure.name, "csv")
    return {
        "title": figure.caption,
        "svg": Markup(figure.svg[figure.svg.index("<svg") :]),  # noqa: S704
        "data": _download(data.name, data.read_bytes()),
    }


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
