"""The cells of the paper's tables and of a study's, under one key, so that they can be compared."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from twf.errors import UserError
from twf.files import PUBLISHED
from twf.study import Cell, Plan, Table
from twf.study.params import Protocol


class CellKey(NamedTuple):
    """What a number is of. `variant` is an experiment's; None is the method as it is.

    `source` is the benchmark's own also where a study takes a smaller one in its place.
    """

    benchmark: str
    source: str
    method: str
    variant: str | None
    buffer: int | None
    protocol: Protocol

    @property
    def row(self) -> str:
        """Method and variant in words, with the names of params.yaml."""
        return self.method if self.variant is None else f"{self.method} {self.variant}"

    @property
    def place(self) -> str:
        """The rest in words."""
        buffer = "no buffer" if self.buffer is None else f"buffer {self.buffer}"
        return f"{self.benchmark} from {self.source}, {buffer}, {self.protocol}"


class Published(NamedTuple):
    """A cell of the paper: per cent, forgetting None where it prints none."""

    table: int
    key: CellKey
    faa: float
    ff: float | None


# What Table 4's rows are called in the published numbers, by the names of our variants.
PUBLISHED_VARIANTS = {
    "all": "cl=on fp=on aux=on",
    "cl": "cl=on fp=off aux=off",
    "cl-fp": "cl=on fp=on aux=off",
    "fp": "cl=off fp=on aux=off",
    "fp-aux": "cl=off fp=on aux=on",
}

# The paper's number is of one pretraining; another source's cell has none to stand beside.
_BENCHMARKS = {
    "split-cifar10": ("split-cifar10", "cifar100"),
    "split-cifar100": ("split-cifar100", "tiny-imagenet"),
    "split-cub200": ("split-cub200", "imagenet"),
    "split-cifar100-from-svhn": ("split-cifar100", "svhn"),
}


def published() -> list[Published]:
    """The paper's numbers in the order of their file; `UserError` where that is missing.

    The paper prints TwF on Split CUB-200 with buffer 400 twice and differently, in Tables 3 and 4:
    the second has the variant `all`, as each cell of Table 4 has one.
    """
    try:
        frame = pd.read_csv(PUBLISHED, dtype={"buffer_size": "Int64"}).astype("object")
    except FileNotFoundError:
        raise UserError(f"no {PUBLISHED}: it is part of the project; take it from there") from None
    variants = {printed: name for name, printed in PUBLISHED_VARIANTS.items()}
    found = []
    for row in frame.where(frame.notna(), None).to_dict("records"):
        key = CellKey(
            *_BENCHMARKS[row["benchmark"]],
            method=row["method"],
            variant=row["variant"] and variants[row["variant"]],
            buffer=row["buffer_size"] or None,  # Table 4 has 0 for none
            protocol=row["protocol"],
        )
        numbers = row["final_average_accuracy"], row["final_forgetting"]
        found.append(Published(row["table"], key, *numbers))
    return found


def key_of(table: Table, cell: Cell) -> CellKey:
    """The key of a cell of a study's table."""
    place = cell.model_dump(include={"method", "variant", "buffer", "protocol"})
    return CellKey(benchmark=table.benchmark, source=table.paper_source, **place)


def printed_for(plan: Plan, table: Table) -> list[Published | None]:
    """The paper's number for each of a table's cells, None where it prints none.

    A variant of Table 4 has Table 4's; one that only differs from the published code the method's
    own; one with other hyperparameters, or from random weights, none.
    """
    numbers = {cell.key: cell for cell in published()}
    found = []
    for cell in table.cells:
        key = key_of(table, cell)
        in_table_4 = key.variant in PUBLISHED_VARIANTS
        pretrained = all(plan.runs[run].pretrained for run in cell.runs.values())
        as_printed = pretrained and (in_table_4 or not cell.retuned)
        of = key if in_table_4 else key._replace(variant=None)
        found.append(numbers.get(of) if as_printed else None)
    return found


def planned(plan: Plan) -> dict[CellKey, dict[int, str]]:
    """The runs of each cell of a study by seed, whichever of its experiments asks for them.

    A variant that changes nothing has the runs of the method as it is, and stands for it too.
    """
    found: dict[CellKey, dict[int, str]] = {}
    for table in plan.tables.values():
        for cell in table.cells:
            key = key_of(table, cell)
            if cell.unchanged:
                found.setdefault(key, found.setdefault(key._replace(variant=None), {}))
            found.setdefault(key, {}).update(cell.runs)
    return {key: dict(sorted(runs.items())) for key, runs in found.items()}
