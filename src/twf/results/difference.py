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
    one_method = new.partition(".")[0] == baseline.partition(".")[0]
    rule = statistics.paired if one_method else statistics.welch
    words = "paired by seed" if one_method else "Welch's"
    for benchmark, source, buffer, protocol in both:
        pair = [arm[benchmark, source, buffer, protocol] for arm in arms]
        gain = rule(*(arm.set_index("seed")["faa"].dropna() for arm in pair))
        ends = "one seed, no interval"
        if not math.isnan(gain.low):
            ends = f"95 % interval {gain.low:+.2f} to {gain.high:+.2f}, {words}, {gain.n} seeds"
        text = f"{gain.mean:+.2f} points ({ends})" if gain.n else "no finished run of both"
        at = f"{benchmark} from {source}, {show.place(protocol, buffer)}"
        yield f"{new} minus {baseline}, {at}: {text}"
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
