"""A study's runs for its report: a row each, with what opens below it, and all of them as CSV."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import pandas as pd

from twf.files import log_file
from twf.learning.evaluation import metrics
from twf.results.runs import Outcome, Runs
from twf.results.tables import in_parentheses
from twf.study.params import PROTOCOLS, Protocol

POINTS = 60  # of a loss curve: 2,000 runs have to fit into a page
WIDTH, HEIGHT = 240, 48  # of a loss curve, in units of the drawing

_COST = ("seconds", "peak_memory_mib", "started", "device")


class Curve(NamedTuple):
    """A run's loss over its epochs as the points of a line, and what a reader asks of it."""

    points: str
    epochs: int
    first: str
    last: str
    highest: str


def entry(outcome: Outcome, losses: list[float]) -> dict[str, Any]:
    """A planned run, with or without a record, for the template."""
    run, row = outcome.run, outcome.row
    details = {"parameters": json.loads(run.parameters)} | outcome.provenance
    return {
        "id": run.id,
        "seed": run.seed,
        "status": outcome.status,
        "reason": row["reason"],
        "results": [_result(outcome, protocol) for protocol in PROTOCOLS],
        "seconds": "—" if row["seconds"] is None else f"{row['seconds']:.1f}",
        "device": row["device"] or "—",
        "details": {name: _lines(values) for name, values in details.items()},
        "memory": row["peak_memory_mib"],
        "started": row["started"] and f"{row['started']:%Y-%m-%d %H:%M} UTC",
        "curve": curve(losses),
        "command": f"twf run {run.study} {run.id}",
        "log": str(log_file(run.study, run.id)),
    }


def _lines(values: Any) -> str:
    """What a provenance has under one name as text: a line for each of its values."""
    if not isinstance(values, dict):
        return json.dumps(values, ensure_ascii=False)
    lines = (f"{key}: {json.dumps(v, ensure_ascii=False)}" for key, v in sorted(values.items()))
    return "\n".join(lines)


def _result(outcome: Outcome, protocol: Protocol) -> str:
    """A run's FAA (FF), in per cent; a dash where it has not finished."""
    if outcome.status != "finished":
        return "—"
    ff = in_parentheses(metrics.forgetting(outcome.accuracy(protocol)))
    return f"{outcome.faa(protocol):.2f} {ff}".rstrip()


def curve(losses: list[float]) -> Curve | None:
    """A run's loss from 0 to its highest value.

    At most `POINTS` of the epochs, evenly spaced, the first and the last among them; epochs whose
    loss is not finite are left out. None with fewer than two.
    """
    finite = [(epoch, loss) for epoch, loss in enumerate(losses) if math.isfinite(loss)]
    if len(finite) < 2:
        return None
    top = max(loss for _, loss in finite) or 1.0
    count = min(POINTS, len(finite))
    chosen = [finite[i * (len(finite) - 1) // (count - 1)] for i in range(count)]
    across = WIDTH / (len(losses) - 1)
    points = (f"{across * e:.0f},{HEIGHT * (1 - max(loss, 0) / top):.0f}" for e, loss in chosen)
    shown = (f"{loss:.4g}" for loss in (finite[0][1], finite[-1][1], top))
    return Curve(" ".join(points), len(losses), *shown)


def frame(runs: Runs) -> pd.DataFrame:
    """A row for each planned run: where it stands, what it gave (per cent), what it cost."""
    long = []
    for run, outcome in runs.outcomes.items():
        place = outcome.run.model_dump(include={"benchmark", "source", "method", "buffer", "seed"})
        state = {"status": outcome.status, "reason": outcome.row["reason"]}
        cost = {name: outcome.row[name] for name in _COST}
        digest = {"digest": outcome.run.digest}
        long.append({"run": run} | place | state | outcome.results() | cost | digest)
    return pd.DataFrame(long).astype({"buffer": "Int64"})
