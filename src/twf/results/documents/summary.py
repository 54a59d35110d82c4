"""What report, statement and model cards say alike: what was run, what is missing, of what code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from twf.results import statistics
from twf.results.output import Row, Texts
from twf.results.paper.comparison import MARGIN, VERDICTS
from twf.results.runs import Runs
from twf.study import Plan
from twf.study.choices import of_study
from twf.study.methods import METHODS
from twf.study.params import Params

NOT_RECORDED = "not recorded"
_KINDS = ("Code", "Methods", "Inputs", "Versions", "Precision", "Execution", "Devices")


def facts(runs: Runs) -> dict[str, str]:
    """What was run, on what, and with which code: a line each."""
    counts = runs.counts(runs.plan.runs)
    shown = [f"{count} {status}" for status, count in counts.items() if count]
    rows = [outcome.row for outcome in runs.outcomes.values()]
    said = [outcome.provenance for outcome in runs.recorded()]
    hashes: dict[str, set[Any]] = defaultdict(set)
    for outcome in runs.recorded():
        hashes[outcome.run.method].add(outcome.provenance["code"].get("method_hash"))
    mixed = [METHODS[method].title for method, found in hashes.items() if len(found) > 1]
    return {
        "Runs": f"{len(runs.plan.runs)} planned: {', '.join(shown)}",
        "Seeds": _distinct(run.seed for run in runs.plan.runs.values()),
        "Time of all runs": f"{sum(row['seconds'] or 0.0 for row in rows) / 3600:.2f} hours",
        "Device": _distinct(row["device"] for row in rows),
        "Precision": _distinct(outcome.precision or NOT_RECORDED for outcome in runs.recorded()),
        "Execution": _distinct(map(_execution, said)),
        "torch": _distinct(provenance["versions"].get("torch") for provenance in said),
        "twf": _made_by(said),
    } | ({"Code differs within": _distinct(mixed)} if mixed else {})


def _distinct(values: Iterable[Any]) -> str:
    """The different values, in order; a dash where there is none."""
    return "; ".join(map(str, sorted({value for value in values if value is not None}))) or "—"


def _execution(provenance: dict[str, Any]) -> str:
    """How a step was executed: plain, captured or compiled."""
    return str(provenance.get("execution", NOT_RECORDED))


def _code(provenance: dict[str, Any]) -> tuple[str, str]:
    """The version, and the commit."""
    code = provenance["code"]
    return code["version"], f"commit {code['commit'] or 'unknown'}"


def _made_by(said: Sequence[dict[str, Any]]) -> str:
    """The versions, and the commit, or how many there are, which `provenance` lists."""
    commits = {commit for _, commit in map(_code, said)}
    versions = _distinct(version for version, _ in map(_code, said))
    if len(commits) > 1:
        return f"{versions}, at {len(commits)} commits"
    return ", ".join([versions, *commits])


def provenance(runs: Runs) -> list[Texts]:
    """Where the records come from: each value, and how many runs have it."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for outcome in runs.recorded():
        row, said = outcome.row, outcome.provenance
        version, commit = _code(said)
        counts["Code", f"twf {version}", commit] += 1
        method = METHODS[outcome.run.method].title
        counts["Methods", method, str(said["code"].get("method_hash"))] += 1
        for name, value in said.get("inputs", {}).items():
            place = row["source"] if name.startswith("checkpoint") else row["benchmark"]
            counts["Inputs", f"{place}, {name.replace('_', ' ')}", str(value)] += 1
        counts.update(("Versions", name, str(value)) for name, value in said["versions"].items())
        counts["Precision", "products and convolutions", outcome.precision or NOT_RECORDED] += 1
        counts["Execution", "steps", _execution(said)] += 1
        counts["Devices", "device", str(row["device"])] += 1
    return [
        {"Of": kind, "What": what, "Value": value, "Runs": str(counts[kind, what, value])}
        for kind, what, value in sorted(counts, key=lambda key: (_KINDS.index(key[0]), key[1:]))
    ]


def choices(params: Params, plan: Plan) -> list[Texts]:
    """What no switch changes and the paper leaves open or does otherwise, of what a study does."""
    return [
        {"Subject": choice.subject, "The paper": choice.paper, "Here": choice.here}
        for choice in of_study(params, plan)
    ]


def unfinished(runs: Runs) -> dict[str, Texts]:
    """Each table with unfinished runs, by name, and how many have each status."""
    found = {}
    for table in runs.plan.tables.values():
        planned = dict.fromkeys(run for cell in table.cells for run in cell.runs.values())
        counts = runs.counts(planned)
        if counts["finished"] < len(planned):
            texts = {"Table": table.title, "Planned": str(len(planned))}
            shown = {status.capitalize(): str(count) for status, count in counts.items()}
            found[table.name] = texts | shown
    return found


def agreement(compared: Sequence[Row], claims: Sequence[Row]) -> list[str]:
    """What the comparison with the paper and its claims come to, in sentences."""
    verdicts = Counter(row["verdict"] for row in compared)
    counts = {verdict: verdicts[verdict] for verdict in VERDICTS}
    measured = len(compared) - counts["not run"]
    found = Counter(row["verdict"] for row in claims)
    order = ("holds", "does not hold", "undecided", "not run")
    shown = [f"{verdict}: {found[verdict]}" for verdict in order if found[verdict]]
    of_claims = f"Of {len(claims)} claims of the paper, on our numbers: {'; '.join(shown)}."
    if not measured:
        none = f"None of the {len(compared)} numbers that the paper prints has been measured yet."
        return [none, of_claims]
    if counts["reduced"]:
        at_scale = (
            f"Of the {len(compared)} numbers that the paper prints, {counts['reduced']} have been "
            "measured at reduced scale, where a difference says nothing of the paper's number."
        )
        return [at_scale, of_claims]
    seeds = []  # none where no cell has two
    if spreads := [row["faa_std"] for row in compared if row["faa_std"] is not None]:
        seeds = [
            f"With a standard deviation of {median(spreads):.2f} points, the median of these "
            "cells', agreement is found in 80 % of cases with "
            f"{statistics.seeds_needed(median(spreads), MARGIN)} seeds, if our true mean is the "
            "paper's number."
        ]
    return [
        f"Of the {len(compared)} numbers that the paper prints, {measured} have been measured.",
        f"{counts['equivalent']} agree with the paper: the 95 % interval of our mean lies within "
        f"{MARGIN:g} points of its number.",
        f"{counts['higher'] + counts['lower']} do not: ours is higher in {counts['higher']} and "
        f"lower in {counts['lower']}.",
        f"{counts['undecided']} are undecided: the interval is too wide, or there is none with a "
        "single seed.",
        *seeds,
        of_claims,
    ]
