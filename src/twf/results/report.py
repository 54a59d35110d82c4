"""The report of a study: one HTML file that needs nothing else, on a screen or printed.

It renders the study's estimates, and computes no mean, interval or verdict of its own.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from twf import files
from twf.results import estimates, figures, provenance, record, search, show, tables
from twf.results.figures import Drawn
from twf.results.frame import Results
from twf.results.paper import claims
from twf.results.printed import PLACE
from twf.results.show import PROTOCOL_TITLES, Section, TextRow, number
from twf.study import Plan, Table

KINDS = "cell", "gain", "claim", "order"
CLAIMS = (
    "A claim says that some differences between cells, or means of them, are positive; “ours” is "
    "the least of these, with its 95 % interval. A claim holds where the interval lies above 0 and "
    "nothing is missing, and does not hold where the interval lies below 0: each of these is wrong "
    "in at most 2.5 % of cases."
)
ORDER = (
    "Kendall's rank correlation of our means with the paper's numbers, over the methods with a "
    "buffer: 1 where the order is the same, -1 where it is reversed. Its interval is the middle "
    "95 % of draws around our means, and nearer to 0 where these are close."
)


def write_all(results: Results) -> None:
    """Make all that a study's records give: estimates, tables, figures, report, page of runs."""
    plan, study = results.plan, results.plan.study
    frame = estimates.of_study(results)
    tables.write(results, frame[frame["kind"] == "cell"], plan.tables.values())
    for ending in files.TABLE_FORMATS:
        for path in files.tables_folder(study).glob(f"[!.]*.*.{ending}"):
            if path.stem not in plan.tables:  # of an experiment that was taken out
                path.unlink()
    tables.write_metrics(plan, frame)
    trials = search.trials(results)
    if plan.search:
        search.write(results, trials)
    drawn = figures.write(results, frame)
    loader = PackageLoader("twf.results")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    template = environment.get_template("report.html.j2")
    mark = Markup(record.REPORT_MARK).format(record.carried(files.runs_file(study)))  # noqa: S704
    for path, values in (
        (files.runs_page(study), {"runs": _runs(results)}),
        (files.report_file(study), _contents(results, frame, trials, drawn)),
    ):
        files.write_text(path, template.render(made_by=mark, plan=plan, **values))
    estimates.write(results, frame)  # last: what carries the plan says that all of it was made


def _contents(
    results: Results, frame: pd.DataFrame, trials: pd.DataFrame, drawn: Sequence[Drawn]
) -> dict[str, Any]:
    """What the report shows of a study's estimates, the trials of its searches, its figures."""
    plan, kinds = results.plan, {kind: frame[frame["kind"] == kind] for kind in KINDS}
    counts = Counter(kinds["claim"]["verdict"])
    verdicts = ", ".join(f"{counts[name]} {name}" for name in claims.VERDICTS if counts[name])
    sections = [
        Section("The paper's claims", _claims(kinds["claim"]), f"{verdicts}. {CLAIMS}"),
        Section("The order of methods", _orders(kinds["order"]), ORDER),
        Section("Hyperparameters searched for", search.text_rows(trials), search.NOTE),
    ]
    first = next(iter(plan.tables), None)
    main_figure = next((figure for figure in drawn if figure.table == first), None)
    return {
        "message": message(results, frame),
        "main_figure": main_figure,  # of the first table
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "rows": tables.text_rows(table, kinds["cell"]),
                "note": tables.note(table, kinds["cell"]),
                "gains": tables.gain_rows(table, kinds["gain"]),
                "figures": [f for f in drawn if f.table == table.name and f is not main_figure],
            }
            for table in plan.tables.values()
        ],
        "sections": [section for section in sections if section.rows],
        "provenance": provenance.sections(results),
        "forgetting": tables.FORGETTING[plan.params.switches(plan.study)["F8"]],
        "margin": f"{estimates.AGREEMENT:g}",
    }


def message(results: Results, frame: pd.DataFrame) -> list[str]:
    """The report's message: what was run, the main result with its interval, how sure it is."""
    plan, runs = results.plan, results.runs
    states = Counter(runs["status"])
    left = "".join(f"; {n} {state}" for state, n in states.items() if state != "finished")
    counts = {"method": runs["method"].nunique(), "seed": runs["seed"].nunique()}
    numbers = ", ".join(f"{n} {name}{'s' * (n > 1)}" for name, n in counts.items())
    what = f"{states['finished']} of {len(runs)} planned runs have finished: {numbers}{left}."
    main = [_main_result(plan, table, frame) for table in list(plan.tables.values())[:1]]
    return [what, *main, agreement(frame[frame["kind"] == "cell"])]


def _main_result(plan: Plan, table: Table, frame: pd.DataFrame) -> str:
    """TwF in a table's first column, and its lead over the best other method with a buffer."""
    protocol = table.protocols[0]
    shown = frame[(frame["table"] == table.name) & (frame["quantity"] == "faa")]
    shown = shown[(shown["protocol"] == protocol) & (shown["buffer"] > 0) & shown["mean"].notna()]
    shown = shown[shown["buffer"] == shown["buffer"].min()].assign(lost=shown["diverged"] > 0)
    shown = shown.sort_values(["lost", "mean"], ascending=[True, False])
    cells, gains = (show.rows(shown[shown["kind"] == kind]) for kind in ("cell", "gain"))
    if not cells:
        return "No method with a buffer has finished yet."
    first = next((cell for cell in cells if cell["method"] == estimates.REFERENCE), cells[0])
    whole = [cell["method"] for cell in cells if not cell["diverged"]]
    others = [method for method in whole if method != first["method"]]
    ends = show.interval(first["low"], first["high"])
    left = f", without {first['diverged']} that diverged" if first["diverged"] else ""
    sentence = (
        f"{first['title']} has {number(first['mean'])} % final average accuracy "
        f"({'one seed' if pd.isna(first['low']) else f'95 % interval {ends}'}{left}) on "
        f"{plan.params.benchmarks[table.benchmark].title}, {show.place(protocol, first['buffer'])}"
    )
    for gain in gains:
        if [gain["method"], gain["over_method"]] == [first["method"], *others[:1]]:
            lead = show.estimate(gain["mean"], gain["low"], gain["high"])
            sentence += f": {lead} points over {gain['title']}, the best of the others"
    return f"{sentence}."


def agreement(of_cells: pd.DataFrame) -> str:
    """How our means stand beside the paper's numbers, counted by verdict."""
    compared = of_cells[(of_cells["quantity"] == "faa") & (of_cells["verdict"] != "")]
    # a variant beside its method's own number is no other number of the paper
    place = [*(name for name in PLACE if name != "variant"), "paper"]
    counts = compared.drop_duplicates(place)["verdict"].value_counts(sort=False)
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    beside = f"Beside {counts.sum()} numbers of the paper, ours are: {verdicts}."
    return beside if verdicts else "The paper prints none of these numbers."


def _orders(ranked: pd.DataFrame) -> list[TextRow]:
    return [
        {
            "Benchmark": f"{row['benchmark']} from {row['source']}",
            "Protocol and buffer": show.place(row["protocol"], row["buffer"]),
            "Methods": str(row["n"]),
            "Kendall's tau": show.estimate(row["mean"], row["low"], row["high"]),
        }
        for row in show.rows(ranked)
    ]


def _claims(claimed: pd.DataFrame) -> list[TextRow]:
    """The claims as text, the verdict first and in its colour; what is decided goes first."""
    order = sorted(show.rows(claimed), key=lambda row: claims.VERDICTS.index(row["verdict"]))
    return [
        {
            "Verdict": _coloured(row["verdict"], "verdict"),
            "Claim": row["title"],
            "Paper": number(row["paper"], "+"),
            "Ours": f"{show.estimate(row['mean'], row['low'], row['high'])} {row['quantity']}",
            "Seeds": str(row["n"]),
            "Remark": row["note"],
        }
        for row in order
    ]


def _coloured(text: str, kind: str = "") -> Markup:
    """A verdict or a state in the colour that the style sheet has for it."""
    return Markup('<span class="{} {}">{}</span>').format(kind, text.replace(" ", "-"), text)


def _runs(results: Results) -> list[TextRow]:
    """The planned runs, unfinished ones first; each opens to show what it was made from."""
    plan, faa, rows = results.plan, results.scores["faa"].to_dict(), []
    done = results.runs["status"] == "finished"
    for run in done.sort_values(kind="stable").index:
        row = results.runs.loc[run]
        about = {"parameters": plan.runs[run].parameters} | row["provenance"]
        about |= row[["started", "device", "seconds", "peak_memory_mib"]].to_dict()
        about |= {"command": f"twf run {plan.study} {run}", "log": files.log_file(plan.study, run)}
        text = json.dumps(about, indent=1, ensure_ascii=False, default=str)
        details = Markup("<details><summary>{}</summary><pre>{}</pre></details>").format(run, text)
        final = {title: number(faa.get((run, p))) for p, title in PROTOCOL_TITLES.items()}
        rows.append(
            {"Run": details, "Status": _coloured(row["status"]), **final}
            | {"Seconds": number(row["seconds"]), "Reason": row["reason"] or ""}
        )
    return rows
