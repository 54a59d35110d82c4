"""Whether methods come in the paper's order: rank correlations of our means with its numbers.

For each column of the paper's Tables 1-3, Kendall's tau over the methods that have a number in
both: the share of their pairs in the same order minus that in the opposite one. Joint is left out:
it is not a method of continual learning, and first everywhere. Most pairs of one method with a
buffer and one without are in the paper's order at any scale, so those with a buffer have a tau of
their own.

Our means differ from the true ones by chance, which a bootstrap over few seeds shows too little of
(`statistics`). So the interval is of the tau of the true means, drawn for each method from
Student's distribution around its mean, as in `statistics.probability_within`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from twf.results.output import PROTOCOL_TITLES, Row, Texts, interval, number
from twf.results.statistics import LEVEL, RESAMPLES

LEAST = 3  # methods in a column


def compare(compared: Iterable[Row]) -> list[Row]:
    """A row for each column of which `LEAST` methods have run, from those of `comparison.compare`.

    With `tau`, the ends `low` and `high` of its 95 % interval (None where a method has a single
    seed), and `n_methods`; a method without a buffer counts in each column of its benchmark. The
    same of methods with a buffer alone, as `buffer_tau` and so on, None where they are too few.
    """
    rows = [
        row
        for row in compared
        if row["variant"] is None and row["method"] != "joint" and row["faa_mean"] is not None
    ]
    places = ("published_table", "benchmark", "source", "protocol", "buffer")
    found = []
    for column in dict.fromkeys(tuple(row[name] for name in places) for row in rows):
        *where, buffer = column
        of_column = [
            row
            for row in rows
            if [row[name] for name in places[:-1]] == where and row["buffer"] in (None, buffer)
        ]
        if buffer is not None and len(of_column) >= LEAST:
            with_buffer = [row for row in of_column if row["buffer"] is not None]
            found.append(
                dict(zip(places, column, strict=True))
                | _correlation(of_column)
                | {f"buffer_{name}": value for name, value in _correlation(with_buffer).items()}
            )
    return found


def _correlation(rows: list[Row]) -> Row:
    found: Row = {"n_methods": len(rows), "tau": None, "low": None, "high": None}
    if len(rows) < LEAST:
        return found
    published, means, deviations, counts = np.array(
        [[row["published_faa"], row["faa_mean"], row["faa_std"] or 0.0, row["n"]] for row in rows],
        np.float64,
    ).T
    found["tau"] = float(kendall(means, published))
    if counts.min() > 1:
        chance = np.random.default_rng(0).standard_t(counts - 1, (RESAMPLES, len(rows)))
        taus = kendall(means + chance * deviations / np.sqrt(counts), published)
        ends = np.quantile(taus, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        found |= dict(zip(("low", "high"), map(float, ends), strict=True))
    return found


def kendall(values: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kendall's tau-a of `values` `[..., n]` with `others` `[n]`, over the last dimension."""
    first, second = np.triu_indices(len(others), k=1)
    signs = np.sign(values[..., first] - values[..., second])
    return (signs * np.sign(others[first] - others[second])).mean(-1)


def entry(row: Row) -> Texts:
    """A row as text, by the heading of each column."""
    texts = {
        "Benchmark": f"{row['benchmark']} from {row['source']}",
        "Protocol": PROTOCOL_TITLES[row["protocol"]],
        "Buffer": str(row["buffer"]),
    }
    for heading, prefix in (("Kendall's tau", ""), ("Of methods with a buffer", "buffer_")):
        tau, low, high, count = (row[prefix + name] for name in ("tau", "low", "high", "n_methods"))
        ends = "" if low is None else f" ({interval(low, high, '+')})"
        texts[heading] = f"{number(tau, '+')}{ends}, {count} methods"
    return texts
