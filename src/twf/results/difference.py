"""One method minus another, or a variant minus its method, in a line with an interval."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from twf.errors import UserError, lookup
from twf.files import record_file
from twf.results import show, statistics
from twf.results.frame import Results

SEEDS = 5  # with fewer, an interval is wider than most effects


def lines(results: Results, new: str, baseline: str) -> Iterator[str]:
    """A line for each benchmark, source, buffer and protocol of both: `new` minus `baseline`.

    Each is named `METHOD`, or `METHOD.VARIANT`. Only runs as planned count, the code of a method
    included where the study follows it; the lines say how to make the others. Raises `UserError`
    where the study has no such cell, or the two are never in one place.
    """
    study, rows = results.plan.study, results.by_place
    names = rows["method"] + ("." + rows["variant"]).where(rows["variant"] != "", "")
    for name in (new, baseline):
        lookup("method or variant", dict.fromkeys(names), name, f"the tables of {study}")
    place = ["benchmark", "source", "buffer", "protocol"]
    arms: list[dict[Any, pd.DataFrame]] = [
        dict(list(rows[names == name].groupby(place, sort=False))) for name in (new, baseline)
    ]
    both = [where for where in arms[0] if where in arms[1]]
    if not both:
        raise UserError(f"no benchmark and buffer of {study} has {new} and {baseline}")
    for benchmark, source, buffer, protocol in both:
        pair = [arm[benchmark, source, buffer, protocol] for arm in arms]
        at = f"{benchmark} from {source}, {show.place(protocol, buffer)}"
        yield f"{new} minus {baseline}, {at}: {_estimate(new, baseline, *pair)}"
        for arm in pair:
            for status, runs in arm[arm["status"] != "finished"].groupby("status")["run"]:
                done = " ".join(str(record_file(study, run)) for run in runs)
                remedy = "" if status == "diverged" else f": snakemake --cores all {done}"
                yield f"  {status}, not counted{remedy}"
    if min(arm["seed"].nunique() for by_place in arms for arm in by_place.values()) < SEEDS:
        yield (
            f"for {SEEDS} seeds of both: `seeds: {list(range(SEEDS))}` in the experiment of "
            "params.yaml that has them"
        )


def _estimate(new: str, baseline: str, *arms: pd.DataFrame) -> str:
    values = [arm[arm["status"] == "finished"].set_index("seed")["faa"] for arm in arms]
    if not all(map(len, values)):
        return "no finished run of both"
    one_method = new.partition(".")[0] == baseline.partition(".")[0]
    gain = (statistics.paired if one_method else statistics.welch)(*values)
    if not gain.n:
        return "no seed that both have finished"
    if math.isnan(gain.low):
        return f"{gain.mean:+.2f} points (one seed, no interval)"
    rule = "paired by seed" if one_method else "Welch's"
    interval = f"95 % interval {gain.low:+.2f} to {gain.high:+.2f}"
    return f"{gain.mean:+.2f} points ({interval}, {rule}, {gain.n} seeds)"
