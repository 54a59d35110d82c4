"""A study's runs as tidy frames: what its records say, its scores, and the cells that they fill.

What counts as finished is decided here; a run that is missing, diverged or stale (its record is of
another plan) is counted, and never averaged. In every frame `buffer` is 0 without one, and
`variant` is empty for a method as it is.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow as pa

from twf.files import record_file
from twf.learning.evaluation import metrics
from twf.results import record
from twf.results.printed import PLACE, PRINTED_VARIANTS, CellKey
from twf.study import Plan, Run
from twf.study.methods import METHODS
from twf.study.params import PROTOCOLS, Protocol
from twf.study.products import Products, study_digest

# By column of `Results.scores`: a function of the accuracy matrix.
SCORES: dict[str, Callable[[metrics.Matrix], float | None]] = {
    "faa": metrics.final_average_accuracy,
    "ff": metrics.forgetting,
    "ff_paper": metrics.forgetting_paper,
    "backward_transfer": metrics.backward_transfer,
}


class Results:
    """The planned runs of a study with their records, as frames."""

    def __init__(self, plan: Plan, records: pa.Table) -> None:
        self.plan = plan
        products = Products(plan.params)
        # losses are the larger part, and no frame has them
        rows = {row["run"]: row for row in records.drop_columns(["history"]).to_pylist()}
        self.runs = pd.DataFrame(
            [_row(products, run, rows.get(name)) for name, run in plan.runs.items()],
            index=pd.Index(plan.runs, name="run", dtype=object),
            dtype=object,
        ).astype({"seconds": float, "peak_memory_mib": float, "buffer": int, "seed": int})

    @classmethod
    def of_records(cls, plan: Plan, runs: Iterable[str]) -> "Results":
        """The runs with the records of some, as far as they are there, collected or not."""
        paths = [record_file(plan.study, run) for run in runs]
        there = [record.read(path) for path in paths if path.exists()]
        return cls(plan, pa.concat_tables([record.SCHEMA.empty_table(), *there]))

    def mark(self, runs: Iterable[str]) -> str:
        """What a table of some runs carries: the study's plan, once all of them have ended."""
        ended = self.runs["status"].loc[list(runs)].isin(["finished", "diverged"]).all()
        return record.TABLE_MARK.format(study_digest(self.plan) if ended else "")

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The `SCORES` of finished runs by run and protocol, per cent; null: Joint forgets none."""
        rows = {
            (run, protocol): [score(row[column("accuracy", protocol)]) for score in SCORES.values()]
            for run, row in self.runs[self.runs["status"] == "finished"].iterrows()
            for protocol in PROTOCOLS
        }
        index = pd.MultiIndex.from_tuples(list(rows), names=["run", "protocol"])
        return pd.DataFrame(rows.values(), index=index, columns=list(SCORES), dtype=float)

    @cached_property
    def members(self) -> pd.DataFrame:
        """A row for each planned run of each cell of the tables, in their order.

        `table`, `name` of the cell, `title` of its row, `PLACE` with the paper's source, `seed`,
        `run`; `unchanged` as in `study.Cell`; `untuned` as that function says; `printed_variant` of
        the paper's number beside it, null for none; `status`; `SCORES`, null without an end.
        """
        rows = []
        for table in self.plan.tables.values():
            titles = table.rows
            for cell in table.cells:
                # a variant of Table 4 has its number there; else the method's own, where it is as
                # printed: not with other hyperparameters, nor from random weights
                in_table_4 = cell.method == "twf" and cell.variant in PRINTED_VARIANTS
                as_printed = all(self.plan.runs[run].pretrained for run in cell.runs.values())
                as_printed &= in_table_4 or not cell.retuned
                printed = (cell.variant if in_table_4 else "") if as_printed else None
                shown = table.name, cell.name, titles[cell.method, cell.variant]
                place = table.benchmark, table.paper_source, cell.method, cell.variant or ""
                where = cell.buffer or 0, cell.protocol
                about = *shown, *place, *where, cell.unchanged, untuned(cell), printed
                rows += [(*about, seed, run) for seed, run in cell.runs.items()]
        names = ["table", "name", "title", *PLACE, "unchanged", "untuned", "printed_variant"]
        frame = pd.DataFrame(rows, columns=[*names, "seed", "run"]).astype({"unchanged": bool})
        frame = frame.join(self.runs["status"], on="run")
        return frame.join(self.scores, on=["run", "protocol"])

    @cached_property
    def cells(self) -> dict[CellKey, pd.DataFrame]:
        """`members` by what their number is of, whichever of the tables asks, ordered by seed.

        A variant that changes nothing has the runs of the method as it is, and stands for it too.
        """
        unchanged = self.members["unchanged"]
        as_it_is = self.members[unchanged].assign(variant="")
        frame = pd.concat([as_it_is, self.members[unchanged], self.members[~unchanged]])
        frame = frame.drop_duplicates([*PLACE, "seed"]).sort_values("seed", kind="stable")
        groups: Any = frame.groupby(PLACE, sort=False)
        return {CellKey(*place): members for place, members in groups}


def untuned(cell: Any) -> str:
    """The hyperparameter of a cell that the paper does not print and no search has chosen.

    With its method's name; empty for none. The search is another study's, whose
    `best_hyperparameters` this one takes.
    """
    method = METHODS[cell.method]
    name = method.not_printed
    return f"{name} of {method.title}" if name and name not in cell.searched else ""


def column(name: str, protocol: Protocol) -> str:
    """The column that has a measure under a protocol; of a record, its `accuracy`."""
    return f"{name}_{protocol.replace('-', '_')}"


def _row(products: Products, run: Run, row: dict[str, Any] | None) -> dict[str, Any]:
    """A run's row: what is planned, and the columns of `record.SCHEMA`, null where it is missing.

    It is `stale` where its record is of another plan.
    """
    recorded = row or dict.fromkeys(record.SCHEMA.names)
    recorded.pop("run")  # the index
    state = recorded["status"] or "missing"
    made = record.provenance(recorded)
    plan = record.plan_of(made, products.params.studies[run.study].follow_code)
    if state != "missing" and plan != products.run_plan(run, plan):
        state = "stale"
    planned = run.model_dump(include={"benchmark", "source", "method", "seed"})
    planned |= {"buffer": run.buffer or 0, "digest": run.digest, "status": state}
    return recorded | planned | {"provenance": made}
