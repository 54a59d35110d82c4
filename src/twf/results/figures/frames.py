"""What the figures draw: a tidy table for each kind, from the runs of one of a study's tables.

A figure's CSV is its frame, and nothing is drawn that is not in it. Means are over finished runs;
a cell without any is absent.

`n` is the number of finished runs, `mean` their mean, `low` and `high` the lowest and the highest
of them: empty with one run, as there is no spread then. Tasks and epochs count from 1, per cent is
of images, `buffer` is empty without rehearsal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from twf.learning.evaluation import metrics
from twf.results import statistics
from twf.results.paper import gains
from twf.results.published import printed_for
from twf.results.record import PROBED
from twf.results.runs import Outcome, Runs
from twf.study import Cell, Table
from twf.study.methods import METHODS

_PLACE = ["method", "variant", "label", "buffer", "protocol"]
_SPREAD = ["n", "mean", "low", "high"]
_WHOLE = ("buffer", "tasks", "trained", "evaluated", "n", "diverged", "task", "epoch")
_REAL = ("mean", "low", "high", "paper", "base", "share", "peak_memory_mib", "seconds")
_TYPES = dict.fromkeys(_WHOLE, "Int64") | dict.fromkeys(_REAL, "float64")  # others are text


def accuracy(runs: Runs, table: Table) -> pd.DataFrame:
    """The average accuracy over the tasks seen so far, per cent, after `tasks` of them.

    Joint, which learns them at once, has one row, after the last.
    """
    long = []
    for cell, place, outcomes in _cells(runs, table):
        matrices = [outcome.accuracy(cell.protocol) for outcome in outcomes]
        last = len(matrices[0][0])
        curves = [metrics.average_accuracies(matrix) for matrix in matrices]
        for i, values in enumerate(zip(*curves, strict=True)):
            long.append(place | {"tasks": last - len(curves[0]) + i + 1} | spread(values))
    return _frame(long, [*_PLACE, "tasks", *_SPREAD])


def matrix(runs: Runs, table: Table) -> pd.DataFrame:
    """The mean accuracy, per cent, on task `evaluated` after training task `trained`.

    Every task, seen or not. Joint, which has no order of tasks, is absent.
    """
    long = []
    for cell, place, outcomes in _cells(runs, table):
        if cell.method == "joint":
            continue
        matrices = [outcome.accuracy(cell.protocol) for outcome in outcomes]
        for t in range(len(matrices[0])):
            for i in range(len(matrices[0][t])):
                mean = statistics.mean([one[t][i] for one in matrices])
                at = {"trained": t + 1, "evaluated": i + 1, "n": len(outcomes), "mean": mean}
                long.append(place | at)
    return _frame(long, [*_PLACE, "trained", "evaluated", "n", "mean"])


def final(runs: Runs, table: Table) -> pd.DataFrame:
    """The final average accuracy of each cell, per cent, and how many of its runs diverged.

    A cell whose runs all diverged has a row with n = 0. `paper` is the paper's number.
    """
    long = []
    for cell, printed in zip(table.cells, printed_for(runs.plan, table), strict=True):
        values = list(runs.faa(cell.runs, cell.protocol).values())
        diverged = runs.counts(cell.runs.values())["diverged"]
        if values or diverged:
            of = {"diverged": diverged, "paper": printed and printed.faa}
            long.append(_place(table, cell) | spread(values) | of)
    return _frame(long, [*_PLACE, *_SPREAD, "diverged", "paper"])


def fidelity(runs: Runs, table: Table) -> pd.DataFrame:
    """What each variant changes of the final average accuracy, in points of per cent.

    The change is from the method as params.yaml has it (`base`, its mean), seed by seed, so `n` is
    the number of seeds that finished both. A variant whose runs all diverged has n = 0.
    """
    long = []
    for cell, base in gains.pairs(table):
        theirs = list(runs.faa(base.runs, base.protocol).values())
        changes = list(gains.by_seed(runs, cell, base).values())
        diverged = runs.counts(cell.runs.values())["diverged"]
        if not theirs or not (changes or diverged):
            continue
        title, level = table.variants[str(cell.variant)], statistics.mean(theirs)
        of = {"title": title, "base": level, "diverged": diverged}
        long.append(_place(table, cell) | of | spread(changes))
    return _frame(long, [*_PLACE, "title", "base", *_SPREAD, "diverged"])


def initialization(runs: Runs, table: Table) -> pd.DataFrame:
    """What is left of the initialization after `tasks` tasks, 0 before training, by `layer`.

    `quantity` is `cka`, from 0 to 1, with the network before training, or `nearest_neighbours`, the
    accuracy on the source's images in per cent. Of the cells whose runs were probed.
    """
    long, seen = [], set()
    for _, place, outcomes in _cells(runs, table):
        probed = [outcome.row for outcome in outcomes if outcome.row["cka"]]
        names = tuple(row["run"] for row in probed)
        if not probed or names in seen:  # one run serves both protocols
            continue
        seen.add(names)
        for quantity, layers in PROBED.items():
            for tasks in range(len(probed[0][quantity])):
                for i, layer in enumerate(layers):
                    at = {"quantity": quantity, "layer": layer, "tasks": tasks}
                    long.append(place | at | spread([row[quantity][tasks][i] for row in probed]))
    return _frame(long, [*_PLACE, "quantity", "layer", "tasks", *_SPREAD])


def shares(runs: Runs, table: Table) -> pd.DataFrame:
    """The final average accuracy by the share of the buffer, in per cent, for the source's images.

    TwF's, where the study has it for the same benchmark, source, buffer and protocol, has no share.
    """
    long = []
    places = {(cell.buffer, cell.protocol) for cell in table.cells}
    own = [cell for cell in table.cells if cell.method != "twf"]
    for cell in [*own, *_twf(runs, table)]:
        values = list(runs.faa(cell.runs, cell.protocol).values())
        if values and (cell.buffer, cell.protocol) in places:
            run = runs.plan.runs[next(iter(cell.runs.values()))]
            share = 100 * getattr(run.hyperparameters, "share", 0.0)
            place = _place(table, cell) | {"label": METHODS[cell.method].title}
            long.append(place | {"share": None if cell.method == "twf" else share} | spread(values))
    frame = _frame(long, [*_PLACE, "share", *_SPREAD])
    return frame if frame["share"].notna().any() else frame[:0]


def _twf(runs: Runs, table: Table) -> Iterable[Cell]:
    """TwF's cells as params.yaml has it, on a table's benchmark and source; each place once."""
    return {
        (cell.buffer, cell.protocol): cell.model_copy(update={"variant": None})
        for other in runs.plan.tables.values()
        if (other.benchmark, other.source) == (table.benchmark, table.source)
        for cell in other.cells
        if cell.method == "twf" and cell.unchanged
    }.values()


def costs(runs: Runs, table: Table) -> pd.DataFrame:
    """The final average accuracy beside what it costs: buffer, memory and time.

    `peak_memory_mib` is the mean over runs of the most that a run held at once: PyTorch's tensors
    on a GPU, the whole process on a CPU. `seconds` is the mean time of a whole run, evaluation
    included. Probed runs are left out of both, as the probes take part of them.
    """
    long = []
    for cell, place, outcomes in _cells(runs, table):
        rows = [outcome.row for outcome in outcomes if not outcome.row["cka"]]
        cost = {
            "peak_memory_mib": statistics.mean([row["peak_memory_mib"] for row in rows]),
            "seconds": statistics.mean([row["seconds"] for row in rows]),
            "device": "; ".join(sorted({row["device"] for row in rows})),
        }
        long.append(place | spread([o.faa(cell.protocol) for o in outcomes]) | cost)
    return _frame(long, [*_PLACE, *_SPREAD, "peak_memory_mib", "seconds", "device"])


def losses(runs: Runs, table: Table) -> pd.DataFrame:
    """The loss in each `epoch`, counted over all tasks, of training task `task`: means over runs.

    `term` is a part of the loss, weighted as in it, or `loss`, their sum where there are several.
    Of the runs of the table's first protocol.
    """
    long = []
    for cell, place, outcomes in _cells(runs, table):
        if cell.protocol != table.protocols[0]:
            continue
        histories = [outcome.row["history"] for outcome in outcomes]
        for epoch, entries in enumerate(zip(*histories, strict=True)):
            at = place | {"task": entries[0]["phase"] + 1, "epoch": epoch + 1, "n": len(outcomes)}
            parts = [dict(entry["terms"]) for entry in entries]
            values = {term: [part[term] for part in parts] for term in parts[0]}
            if len(values) > 1:
                values["loss"] = [entry["loss"] for entry in entries]
            long += [at | {"term": t, "mean": statistics.mean(v)} for t, v in values.items()]
    return _frame(long, [*_PLACE, "task", "epoch", "term", "n", "mean"])


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Number, mean, lowest and highest of some runs' values; the ends are None for one run."""
    ends = (min(values), max(values)) if len(values) > 1 else (None, None)
    return {"n": len(values), "mean": statistics.mean(values), "low": ends[0], "high": ends[1]}


def _cells(runs: Runs, table: Table) -> Iterator[tuple[Cell, dict[str, Any], list[Outcome]]]:
    """Each cell with finished runs, where it stands, and these runs."""
    for cell in table.cells:
        if outcomes := list(runs.finished(cell.runs).values()):
            yield cell, _place(table, cell), outcomes


def _place(table: Table, cell: Cell) -> dict[str, Any]:
    """Where a cell stands, and what its row is called."""
    label = table.rows.get((cell.method, cell.variant), METHODS[cell.method].title)
    place = cell.model_dump(include={"method", "variant", "buffer", "protocol"})
    return place | {"label": label}


def _frame(long: Iterable[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    """The rows as a frame whose columns have the same types whatever is in it."""
    types = {name: _TYPES.get(name, "str") for name in columns}
    return pd.DataFrame(list(long), columns=columns).astype(types)
