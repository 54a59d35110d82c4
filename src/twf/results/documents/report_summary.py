"""What a study's report says first and last: what was run, what is missing, and of what code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa

from twf.results import record, tables
from twf.results.paper.comparison import MARGIN, VERDICTS
from twf.study import Plan
from twf.study.methods import METHODS

Rows = dict[str, dict[str, Any]]  # records by run, provenance decoded

STATUSES = ("finished", "diverged", "stale", "unreadable", "missing")


def rows_of(plan: Plan, records: pa.Table) -> Rows:
    """The records of the planned runs, as `tables.records` has them, with provenance decoded."""
    rows = tables.records(plan, records)
    return {run: row | {"provenance": record.provenance(row)} for run, row in rows.items()}


def status_counts(runs: Iterable[str], rows: Rows) -> dict[str, int]:
    """How many of some planned runs have each status, in the order of `STATUSES`."""
    found = Counter(rows[run]["status"] if run in rows else "missing" for run in runs)
    return {status: found[status] for status in STATUSES}


def facts(plan: Plan, rows: Rows) -> dict[str, str]:
    """What was run, on what, and with which code: a line each."""
    counts = status_counts(plan.runs, rows)
    shown = [f"{count} {status}" for status, count in counts.items() if count]
    hours = sum(row["seconds"] or 0.0 for row in rows.values()) / 3600
    provenances = [row["provenance"] for row in rows.values() if row["provenance"]]
    codes = [provenance["code"] for provenance in provenances]
    mixed = [METHODS[method].title for method, found in _hashes(rows).items() if len(found) > 1]
    return {
        "Runs": f"{len(plan.runs)} planned: {', '.join(shown)}",
        "Seeds": _distinct(run.seed for run in plan.runs.values()),
        "Time of all runs": f"{hours:.2f} hours",
        "Device": _distinct(row["device"] for row in rows.values()),
        "torch": _distinct(provenance["versions"].get("torch") for provenance in provenances),
        "twf": _distinct(f"{c['version']}, commit {c['commit'] or 'unknown'}" for c in codes),
    } | ({"Code differs within": _distinct(mixed)} if mixed else {})


def _distinct(values: Iterable[Any]) -> str:
    """The different values, in order; a dash where there is none."""
    return "; ".join(map(str, sorted({value for value in values if value is not None}))) or "—"


def _hashes(rows: Rows) -> dict[str, Counter[str]]:
    """How many runs were made with each hash of the code, by method."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows.values():
        if row["provenance"]:
            found[row["method"]][str(row["provenance"]["code"].get("method_hash"))] += 1
    return found


def agreement(long: pd.DataFrame) -> list[str]:
    """What the comparison with the paper comes to, in sentences."""
    verdicts = Counter(long["verdict"])
    counts = {verdict: verdicts[verdict] for verdict in VERDICTS}
    measured = len(long) - counts["not run"]
    if not measured:
        return [f"None of the {len(long)} numbers that the paper prints has been measured yet."]
    return [
        f"Of the {len(long)} numbers that the paper prints, {measured} have been measured.",
        f"{counts['equivalent']} agree with the paper: the 95 % interval of our mean lies within "
        f"{MARGIN:g} points of its number.",
        f"{counts['higher'] + counts['lower']} do not: ours is higher in {counts['higher']} and "
        f"lower in {counts['lower']}.",
        f"{counts['undecided']} are undecided: the interval is too wide, or there is none with a "
        "single seed.",
    ]


def claim_counts(long: pd.DataFrame) -> list[str]:
    """What the paper's claims come to on our numbers, in sentences."""
    found = Counter(long["verdict"])
    order = ("holds", "does not hold", "undecided", "not run")
    shown = [f"{found[verdict]} {verdict}" for verdict in order if found[verdict]]
    return [f"Of {len(long)} claims of the paper, on our numbers: {', '.join(shown)}."]


def holes(plan: Plan, rows: Rows) -> list[dict[str, Any]]:
    """Each table with unfinished runs, and how many have each status."""
    found = []
    for table in plan.tables.values():
        runs = dict.fromkeys(run for cell in table.cells for run in cell.runs.values())
        counts = status_counts(runs, rows)
        if counts["finished"] < len(runs):
            words = {"name": table.name, "title": table.title}
            found.append(words | {"planned": len(runs), "counts": counts})
    return found


def provenance(rows: Rows) -> dict[str, list[tuple[str, str, int]]]:
    """Where the records come from: by kind, what of what, and in how many runs."""
    kinds: dict[str, Counter[tuple[str, str]]] = {
        name: Counter() for name in ("Code", "Methods", "Inputs", "Versions", "Devices")
    }
    for row in rows.values():
        found = row["provenance"]
        if not found:
            continue
        code = found["code"]
        kinds["Code"][f"twf {code['version']}", f"commit {code['commit'] or 'unknown'}"] += 1
        kinds["Versions"].update((k, str(v)) for k, v in found["versions"].items())
        for name, value in found.get("inputs", {}).items():
            place = row["source"] if name.startswith("checkpoint") else row["benchmark"]
            kinds["Inputs"][f"{place}, {name.replace('_', ' ')}", str(value)] += 1
        kinds["Devices"]["device", str(row["device"])] += 1
    for method, hashes in _hashes(rows).items():
        for value, count in hashes.items():
            kinds["Methods"][METHODS[method].title, value] += count
    return {
        kind: [(what, value, count) for (what, value), count in sorted(counter.items())]
        for kind, counter in kinds.items()
        if counter
    }
