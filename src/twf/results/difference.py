"""One method minus another, or a variant minus its method, in a line with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from twf.errors import UserError, lookup
from twf.files import record_file
from twf.results import statistics
from twf.results.frame import Results
from twf.results.show import PROTOCOL_TITLES

SEEDS = 5  # with fewer, an interval is wider than most effects


def lines(results: Results, new: str, baseline: str) -> Iterator[str]:
    """A line for each benchmark, source, buffer and protocol of both: `new` minus `baseline`.

    Each is named `METHOD`, or `METHOD.VARIANT`. Only runs as planned count, the code of a method
    included where the study follows it; the lines say how to make the others. Raises `UserError`
    where the study has no such cell, or the two are never in one place.
    """
    rows = results.by_place
    names = rows["method"] + ("." + rows["variant"]).where(rows["variant"] != "", "")
    known = dict.fromkeys(names)
    for name in (new, baseline):
        lookup("method or variant", known, name, f"the tables of {results.plan.study}")
    place = ["benchmark", "source", "buffer", "protocol"]
    ours, theirs = rows[names == new], rows[names == baseline]
    places = ours[place].drop_duplicates().merge(theirs[place].drop_duplicates())
    if places.empty:
        raise UserError(f"no benchmark and buffer of {results.plan.study} has {new} and {baseline}")
    for _, where in places.iterrows():
        arms = [arm[(arm[place] == where).all(axis=1)] for arm in (ours, theirs)]
        yield _line(new, baseline, where, arms)
        for arm in arms:
            yield from _missing(results.plan.study, arm)
    if any(
        len(arm[place].value_counts()) and arm["seed"].nunique() < SEEDS for arm in (ours, theirs)
    ):
        yield (
            f"for {SEEDS} seeds of both: `seeds: {list(range(SEEDS))}` in the experiment of "
            "params.yaml that has them"
        )


def _line(new: str, baseline: str, where: pd.Series, arms: list[pd.DataFrame]) -> str:
    finished = [arm[arm["status"] == "finished"].set_index("seed")["faa"] for arm in arms]
    buffer = f", buffer {where['buffer']}" if where["buffer"] else ""
    title = f"{new} minus {baseline}, {where['benchmark']} from {where['source']}{buffer}"
    title += f", {PROTOCOL_TITLES[where['protocol']]}"
    if not all(len(values) for values in finished):
        return f"{title}: no finished run of both"
    one_method = new.partition(".")[0] == baseline.partition(".")[0]
    found = (statistics.paired if one_method else statistics.welch)(*finished)
    if not found.n:
        return f"{title}: no seed that both have finished"
    if math.isnan(found.low):
        return f"{title}: {found.mean:+.2f} points (one seed, no interval)"
    rule = "paired by seed" if one_method else "Welch's"
    interval = f"95 % interval {found.low:+.2f} to {found.high:+.2f}"
    return f"{title}: {found.mean:+.2f} points ({interval}, {rule}, {found.n} seeds)"


def _missing(study: str, arm: pd.DataFrame) -> Iterator[str]:
    """What is said of runs that do not count."""
    for status, runs in arm[arm["status"] != "finished"].groupby("status")["run"]:
        done = " ".join(str(record_file(study, run)) for run in dict.fromkeys(runs))
        remedy = "" if status == "diverged" else f": snakemake --cores all {done}"
        yield f"  {status}, not counted{remedy}"
