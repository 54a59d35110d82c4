"""The report of a study: one HTML file that needs nothing else, on a screen or printed.

It renders the study's estimates, and computes no mean, interval or verdict of its own.
"""

import base64
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from twf import files
from twf.errors import note
from twf.results import estimates, figures, provenance, record, search, show, tables
from twf.results.figures import Drawn
from twf.results.frame import Results
from twf.results.paper import claims
from twf.results.printed import PLACE
from twf.results.show import PROTOCOL_TITLES, Section, TextRow, in_parentheses, number
from twf.study import Plan, Table
from twf.study.params import Params

TEXT = 40  # characters; a column with a longer text may have several lines

GAINS = (
    "Gains are differences of final average accuracy in percentage points, with a 95 % interval: "
    "Welch's between methods, and Student's by seed between variants of a method, over the seeds "
    "that both have finished (n=a/b: a of b). Intervals are not corrected for their number; "
    "paper: the same difference of its numbers."
)
CLAIMS = (
    "Each claim says that some differences between cells are positive, or means of them; “ours” is "
    "the least of these, with its 95 % interval. A claim holds where the interval lies above 0 and "
    "nothing is missing, and does not hold where the interval lies below 0: for one claim, each of "
    "these is wrong in at most 2.5 % of cases."
)
ORDER = (
    "Kendall's rank correlation of our means with the paper's numbers, over the methods with a "
    "buffer that have both: 1 where the order is the same, -1 where it is reversed; in "
    "parentheses, its 95 % interval over our true means."
)
UNFINISHED = "`snakemake --cores all results/{}/report.html` does those that are missing or stale."


def write_all(params: Params, results: Results) -> None:
    """Make all that a study's records give: estimates, tables, figures, report."""
    plan = results.plan
    note(f"{plan.study}: estimates and tables")
    frame = estimates.of_study(results)
    estimates.write(results, frame)
    tables.write(results, frame[frame["kind"] == "cell"], plan.tables.values())
    tables.write_metrics(plan, frame)
    trials = search.trials(results)
    if plan.search:
        search.write(results, trials)
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
    """Write the report of a study, and the page of its runs.

    From its estimates, the trials of its searches, and its figures.
    """
    plan, study = results.plan, results.plan.study
    of_cells, gains, claimed, ranked = (
        frame[frame["kind"] == kind] for kind in ("cell", "gain", "claim", "order")
    )
    agreed, first = agreement(of_cells, claimed), _main_figure(plan, drawn)
    shown = [
        {"name": name, "title": table.title, "rows": tables.text_rows(table, of_cells, html=True)}
        | {"note": tables.note(table, of_cells), "rule": tables.rule(table)}
        | {"gains": tables.gain_rows(table, gains)}
        | {"figures": [f for f in drawn if f.table == name and f != first]}
        for name, table in plan.tables.items()
    ]
    unfinished = provenance.unfinished(results)
    sections = [
        Section("The paper's claims", _by_verdict(claimed), CLAIMS),
        Section("The order of methods", _orders(ranked), ORDER),
        Section("Hyperparameters searched for", search.text_rows(trials), search.NOTE),
        Section("Runs that are in no mean", unfinished, UNFINISHED.format(study)),
    ]
    styles = resources.files("twf.results").joinpath("templates", "report.css")
    common = {
        "made_by": Markup(record.REPORT_MARK.format(record.collected_plan(study))),  # noqa: S704
        "title": plan.title,
        "style": Markup(styles.read_text(encoding="utf-8")),  # noqa: S704
    }
    page = common | {
        "page": "report",
        "note": plan.note,
        "message": message(results, frame, agreed),
        "main_figure": first,
        "tables": shown,
        "gains_note": GAINS,
        "sections": [section for section in sections if section.rows],
        "agreement": agreed,
        "facts": provenance.facts(results),
        "provenance": provenance.sections(params, results),
        "forgetting": tables.FORGETTING[params.switches(study)["F8"]],
        "margin": f"{estimates.MARGIN:g}",
        "download": _download(f"{study}-estimates.csv", files.estimates_file(study, "csv")),
    }
    scores = results.scores.to_dict("index")
    runs = [_run(plan, str(run), row, scores) for run, row in results.runs.iterrows()]
    template = _environment.get_template("report.html.j2")
    for path, values in (
        (files.runs_page(study), common | {"page": "runs", "runs": runs}),
        (files.report_file(study), page),
    ):
        with files.atomic(path) as partial:
            partial.write_text(template.render(values), encoding="utf-8")


def message(results: Results, frame: pd.DataFrame, agreed: Sequence[str]) -> list[str]:
    """The report's message: what was run, the main result with its interval, how sure it is."""
    plan, runs = results.plan, results.runs
    states = Counter(runs["status"])
    left = "".join(f"; {n} {state}" for state, n in states.items() if state != "finished")
    seeds, methods = len(set(runs["seed"])), runs["method"].nunique()
    what = (
        f"{states['finished']} of {len(runs)} planned runs have finished: {methods} methods, "
        f"{seeds} seed{'s' * (seeds > 1)}{left}."
    )
    return [what, *(_main_result(plan, table, frame) for table in _first(plan)), agreed[0]]


def _first(plan: Plan) -> list[Table]:
    """The first table of a study, if it has any."""
    return list(plan.tables.values())[:1]


def _main_result(plan: Plan, table: Table, frame: pd.DataFrame) -> str:
    """TwF in a table's first column, and its lead over the best other method with a buffer."""
    shown = frame[(frame["table"] == table.name) & (frame["quantity"] == "faa")]
    shown = shown[shown["mean"].notna() & (shown["protocol"] == table.protocols[0])]
    cells = shown[(shown["kind"] == "cell") & (shown["buffer"] > 0)]
    cells = cells[cells["buffer"] == cells["buffer"].min()].sort_values("mean", ascending=False)
    if cells.empty:
        return "No method with a buffer has finished yet."
    own = cells[cells["method"] == estimates.REFERENCE]
    first = (own if len(own) else cells).iloc[0]
    ends = show.interval(first["low"], first["high"])
    sentence = (
        f"{first['title']} has {number(first['mean'])} % final average accuracy "
        f"({'one seed' if pd.isna(first['low']) else f'95 % interval {ends}'}) on "
        f"{plan.params.benchmarks[table.benchmark].title}, "
        f"{show.place(table.protocols[0], first['buffer'])}"
    )
    gains = shown[(shown["kind"] == "gain") & (shown["buffer"] == first["buffer"])]
    gains = gains[gains["method"] == first["method"]].set_index("over_method")
    for best in show.rows(cells[cells["method"].isin(gains.index)].head(1)):
        gain = show.estimate(*gains.loc[best["method"], ["mean", "low", "high"]])
        sentence += f": {gain} points over {best['title']}, the best of the others"
    return f"{sentence}."


def agreement(of_cells: pd.DataFrame, claimed: pd.DataFrame) -> list[str]:
    """What the comparison with the paper and its claims come to, in sentences."""
    compared = of_cells[(of_cells["quantity"] == "faa") & of_cells["paper"].notna()]
    counts = Counter(compared.drop_duplicates(PLACE)["verdict"])
    measured = counts.total() - counts["not run"] - counts["reduced"]
    parts = [
        f"of {measured} numbers of the paper that were measured at its own scale, "
        f"{counts['equivalent']} agree (the 95 % interval of our mean lies within "
        f"{estimates.MARGIN:g} points of the number), ours are higher in {counts['higher']} and "
        f"lower in {counts['lower']}, and {counts['undecided']} are undecided (the interval is too "
        "wide, there is one seed, or a run diverged)"
    ]
    parts = parts if measured else []
    if counts["reduced"]:
        parts.append(
            f"{counts['reduced']} were measured at reduced scale, where a difference says nothing "
            "of the paper's number"
        )
    whole = "; ".join(parts) or "none of the numbers that the paper prints has been measured yet"
    counts = Counter(claimed["verdict"])
    verdicts = [f"{verdict} {counts[verdict]}" for verdict in claims.VERDICTS if counts[verdict]]
    return [
        f"{whole[0].upper()}{whole[1:]}.",
        f"The paper's {len(claimed)} claims: {', '.join(verdicts)}.",
    ]


def _orders(ranked: pd.DataFrame) -> list[TextRow]:
    return [
        {
            "Benchmark": f"{row['benchmark']} from {row['source']}",
            "Protocol": PROTOCOL_TITLES[row["protocol"]],
            "Buffer": str(row["buffer"]),
            "Methods": str(row["n"]),
            "Kendall's tau": show.estimate(row["mean"], row["low"], row["high"]),
        }
        for row in show.rows(ranked)
    ]


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


def columns(rows: Sequence[TextRow]) -> dict[str, str]:
    """The class of each column of a table, by its heading: number, text or none."""
    kinds = {}
    for name in rows[0]:
        texts = [row[name] for row in rows]
        plain = [text for text in texts if not isinstance(text, Markup)]
        wide = any(len(text) > TEXT for text in plain)
        numbers = plain and all(text[:1] in "+-0123456789—" for text in plain)
        kinds[name] = "text" if wide else "number" if numbers else ""
    return kinds


def svg(drawing: str) -> Markup:
    """A drawing for the page. Text from data is escaped in it, and no script of it would be run."""
    return Markup(drawing[drawing.index("<svg") :])  # noqa: S704


_environment = Environment(
    loader=PackageLoader("twf.results"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {"columns": columns, "svg": svg}


def _download(name: str, path: Path) -> Markup:
    """A link to a CSV file, whose content is in the page."""
    encoded = base64.b64encode(path.read_bytes()).decode()
    return Markup('<a download="{0}" href="data:text/csv;charset=utf-8;base64,{1}">{0}</a>').format(
        name, encoded
    )


def _main_figure(plan: Plan, drawn: Sequence[Drawn]) -> Drawn | None:
    """The figure on the first screen: the first table's differences, or its first."""
    own = [figure for table in _first(plan) for figure in drawn if figure.table == table.name]
    return next((f for f in own if f.name.startswith("differences")), next(iter(own), None))


def _run(plan: Plan, run: str, row: Any, scores: Mapping[Any, Any]) -> TextRow:
    """A planned run as a row, which opens to show what it was made from."""
    about = {"parameters": plan.runs[run].parameters} | row["provenance"]
    about |= {"started": row["started"], "peak memory in MiB": row["peak_memory_mib"]}
    about |= {"command": f"twf run {plan.study} {run}"}
    about |= {"log": files.log_file(plan.study, run)}
    text = json.dumps(about, indent=1, ensure_ascii=False, default=str)
    reason = Markup('<p class="alarm">{}</p>').format(row["reason"]) if row["reason"] else ""
    accuracies = {}
    for protocol, title in PROTOCOL_TITLES.items():
        score = scores.get((run, protocol), {})
        accuracies[title] = f"{number(score.get('faa'))} {in_parentheses(score.get('ff'))}".rstrip()
    return {
        "Run": Markup("<details><summary>{}</summary><pre>{}</pre></details>{}").format(
            run, text, reason
        ),
        "Status": Markup('<span class="{0}">{0}</span>').format(row["status"]),
        "Seed": str(row["seed"]),
        **accuracies,
        "Seconds": "—" if pd.isna(row["seconds"]) else f"{row['seconds']:.1f}",
        "Device": row["device"] or "—",
    }
