"""What the figures draw: a tidy frame for each kind, from the runs of one of a study's tables.

A figure's CSV is its frame, and nothing is drawn that is not in it. Means are over finished runs;
a cell without any is absent. `n` is the number of finished runs, `mean` their mean, `low` and
`high` the ends of Student's 95 % interval: empty with one run. Tasks count from 1, per cent is of
images, `buffer` is 0 without rehearsal.
"""

from __future__ import annotations

import pandas as pd

from twf.results import show, statistics, tables
from twf.results.frame import Results
from twf.results.record import PROBED
from twf.study import Table
from twf.study.methods import METHODS

PLACE = ["method", "variant", "label", "buffer", "protocol"]
SPREAD = ["n", "mean", "low", "high"]


def spread(rows: pd.DataFrame, by: list[str], value: str = "value") -> pd.DataFrame:
    """Number, mean and interval of some rows' values: a row for each group by some columns."""
    groups = rows.groupby(by, sort=False, dropna=False)[value]
    return statistics.summary(groups).reset_index()[[*by, *SPREAD]]


def _members(results: Results, table: Table) -> pd.DataFrame:
    """The finished runs of a table's cells, as `Results.members`, with `label`."""
    rows = results.members[results.members["table"] == table.name]
    return _labelled(rows[rows["status"] == "finished"], table)


def _labelled(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    """The rows with the title of their row in the table."""
    titles = {(method, variant or ""): title for (method, variant), title in table.rows.items()}
    return rows.assign(
        label=[titles[of] for of in zip(rows["method"], rows["variant"], strict=True)]
    )


def accuracy(results: Results, table: Table) -> pd.DataFrame:
    """The average accuracy over the tasks seen so far, per cent, after `tasks` of them.

    Joint, which learns them at once, has one row, after the last.
    """
    rows = _members(results, table).merge(results.accuracies, on=["run", "protocol"])
    seen = rows[rows["evaluated"] <= rows["trained"]].rename(columns={"trained": "tasks"})
    by = [*PLACE, "run", "tasks"]
    averages = seen.groupby(by, sort=False)["accuracy"].mean().reset_index()
    return spread(averages, [*PLACE, "tasks"], "accuracy")


def differences(estimates: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Differences of final average accuracy between cells, in percentage points.

    The estimates of kind `gain` of a table whose two cells have a finished run; of methods, those
    with a buffer. `title` is the method's or the variant's, `over` a heading that says what is
    subtracted. A variant whose runs all diverged has n = 0, and says in `diverged` how many.
    """
    rows = estimates[(estimates["kind"] == "gain") & (estimates["table"] == table.name)]
    titles = {name: info.title for name, info in METHODS.items()}
    if table.variants:
        rows = rows[(rows["n"] > 0) | (rows["diverged"] > 0)]
        title = rows["variant"].map(table.variants)
        rows = rows.assign(over=rows["method"].map(titles) + " with")
    else:
        other = "method" if table.baseline else "over_method"
        rehearses = rows[other].map(lambda name: METHODS[name].rehearsal).astype(bool)
        rows = rows[rehearses & (rows["n"] > 0)]
        title = rows[other].map(titles)
        rows = rows.assign(over=tables.over(table))
    rows = rows.assign(label=rows["title"], title=title)
    return rows[[*PLACE, "title", "over", *SPREAD, "diverged", "paper"]]


def initialization(results: Results, table: Table) -> pd.DataFrame:
    """What is left of the initialization after `tasks` tasks, 0 before training, by `layer`.

    `quantity` is `cka`, from 0 to 1, with the network before training, `nearest_neighbours`, the
    accuracy on the source's images in per cent, or `gates_open`, in per cent. Of the cells whose
    runs were probed.
    """
    rows = _members(results, table).drop_duplicates("run")  # one run serves both protocols
    probed = results.runs[list(PROBED)]
    values = [
        (*(row[name] for name in PLACE), quantity, layer, tasks, value)
        for row in show.rows(rows)
        for quantity, layers in PROBED.items()
        for tasks, after in enumerate(probed.loc[row["run"], quantity])
        for layer, value in zip(layers, after, strict=True)
    ]
    by = [*PLACE, "quantity", "layer", "tasks"]
    return spread(pd.DataFrame(values, columns=[*by, "value"]), by)


def shares(results: Results, table: Table) -> pd.DataFrame:
    """The final average accuracy by the share of the buffer, in per cent, for the source's images.

    TwF's, where the study has it for the same benchmark, source, buffer and protocol, has no share.
    """
    rows = _members(results, table)
    rows = rows[rows["method"] != "twf"]
    known = results.plan.runs
    share = [100 * getattr(known[run].hyperparameters, "share", 0.0) for run in rows["run"]]
    same = [t for t in results.plan.tables.values() if t.benchmark == table.benchmark]
    twf = pd.concat([_members(results, t) for t in same if t.source == table.source])
    twf = twf[(twf["method"] == "twf") & twf["unchanged"]].drop_duplicates(["run", "protocol"])
    twf = twf.merge(rows[["buffer", "protocol"]].drop_duplicates())
    both = pd.concat([rows.assign(share=share), twf.assign(share=float("nan"), variant="")])
    both["label"] = both["method"].map(lambda name: METHODS[name].title)
    frame = spread(both, [*PLACE, "share"], "faa")
    return frame if frame["share"].notna().any() else frame[:0]
