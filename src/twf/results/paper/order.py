"""Whether methods come in the paper's order: rank correlations of our means with its numbers.

For each column of the paper's Tables 1-3, Kendall's tau over the methods that have a number in
both: the share of their pairs in the same order minus that in the opposite one. Joint is left out:
it is not a method of continual learning, and first everywhere. Most pairs of one method with a
buffer and one without are in the paper's order at any scale, so those with a buffer have a tau of
their own.

Our means differ from the true ones by chance. So the interval is of the tau of the true means,
drawn for each method from Student's distribution around its mean.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from twf.files import order_file
from twf.results import show
from twf.results.show import PROTOCOL_TITLES, TextRow
from twf.results.statistics import SAMPLES, TAIL

LEAST = 3  # methods in a column

_COLUMN = ["printed_table", "benchmark", "source", "protocol"]
_TAU = {"tau": pa.float64(), "low": pa.float64(), "high": pa.float64(), "n_methods": pa.int64()}

SCHEMA = pa.schema(
    [
        ("printed_table", pa.int64()),
        *((name, pa.string()) for name in _COLUMN[1:]),
        ("buffer", pa.int64()),
        # Of all methods, the ends of a 95 % interval, null where a method has a single seed
        *_TAU.items(),
        # The same of methods with a buffer alone; null where they are fewer than `LEAST`
        *((f"buffer_{name}", kind) for name, kind in _TAU.items()),
    ]
)
COMPARED = show.Compared(
    order_file,
    SCHEMA,
    "Kendall's rank correlation of our means with the paper's numbers, over the methods with a "
    "number in both but Joint, and over those of them with a buffer: 1 where the order is the "
    "same, -1 where it is reversed; in parentheses, its 95 % interval over our true means.",
)


def compare(compared: pd.DataFrame) -> pd.DataFrame:
    """A row of `SCHEMA` for each column of which `LEAST` methods have run, of the comparison.

    A method without a buffer counts in each column of its benchmark.
    """
    rows = compared[(compared["variant"] == "") & (compared["method"] != "joint")]
    rows = rows[rows["faa_mean"].notna()]
    columns = []
    for where, group in rows.groupby(_COLUMN, sort=False):
        for buffer in dict.fromkeys(group["buffer"][group["buffer"] > 0]):
            of_column = group[group["buffer"].isin([0, buffer])]
            if len(of_column) >= LEAST:
                alone = _correlation(of_column[of_column["buffer"] > 0])
                columns.append(
                    dict(zip(_COLUMN, where, strict=True))
                    | {"buffer": buffer}
                    | _correlation(of_column)
                    | {f"buffer_{name}": value for name, value in alone.items()}
                )
    return pd.DataFrame(columns, columns=SCHEMA.names)


def _correlation(rows: pd.DataFrame) -> dict[str, float]:
    tau: dict[str, float] = dict.fromkeys(_TAU, np.nan) | {"n_methods": len(rows)}
    if len(rows) < LEAST:
        return tau
    printed, means, counts = (rows[n].to_numpy(float) for n in ("printed_faa", "faa_mean", "n"))
    deviations = rows["faa_std"].fillna(0.0).to_numpy()
    tau["tau"] = float(kendall(means, printed))
    if counts.min() > 1:
        chance = np.random.default_rng(0).standard_t(counts - 1, (SAMPLES, len(rows)))
        taus = kendall(means + chance * deviations / np.sqrt(counts), printed)
        tau["low"], tau["high"] = map(float, np.quantile(taus, [TAIL, 1 - TAIL]))
    return tau


def kendall(values: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kendall's tau-a of `values` `[..., n]` with `others` `[n]`, over the last dimension."""
    first, second = np.triu_indices(len(others), k=1)
    signs = np.sign(values[..., first] - values[..., second])
    return (signs * np.sign(others[first] - others[second])).mean(-1)


def text_rows(ranked: pd.DataFrame) -> list[TextRow]:
    """The rows as text, by the heading of each column."""
    texts = []
    for row in show.rows(ranked):
        of = {
            "Benchmark": f"{row['benchmark']} from {row['source']}",
            "Protocol": PROTOCOL_TITLES[row["protocol"]],
            "Buffer": str(row["buffer"]),
        }
        for heading, prefix in (("Kendall's tau", ""), ("Of methods with a buffer", "buffer_")):
            tau, low, high, count = (row[prefix + name] for name in _TAU)
            of[heading] = f"{show.estimate(tau, low, high)}, {count} methods"
        texts.append(of)
    return texts
