"""What the figures draw: a tidy table for each kind, from a study's plan and its runs' records.

A figure's CSV is its frame, and nothing is drawn that is not in it. A run that is missing,
diverged, or made with other parameters than the plan's is a hole, and no mean is over it; a cell
without a finished run is absent.

`n` is the number of finished runs, `mean` their mean, `low` and `high` the lowest and the highest
of them: empty with one run, as there is no spread then. Tasks and epochs count from 1, per cent is
of images, `buffer` is empty without rehearsal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from twf.learning.evaluation import metrics
from twf.results import statistics, tables
from twf.study import Cell, Plan, Table
from twf.study.methods import METHODS

Rows = dict[str, dict[str, Any]]  # by run, as `tables.records` gives them; with their losses

LAYERS = ("stem", *(f"Layer {i}" for i in range(1, 5)))  # as a record has its `cka`

_PLACE = ["method", "variant", "label", "buffer", "protocol"]
_SPREAD = ["n", "mean", "low", "high"]


def accuracy(plan: Plan, table: Table, rows: Rows) -> pd.DataFrame:
    """The average accuracy over the tasks seen so far, per cent, after `tasks` of them.

    Joint, which learns them at once, has one row, after the last.
    """
    long = []
    for place, runs in _cells(table, rows):
        curves = [_curve(tables.accuracy(row, place["protocol"])) for row in runs]
        last = len(tables.accuracy(runs[0], place["protocol"])[0])
        for i, values in enumerate(zip(*curves, strict=True)):
            long.append(place | {"tasks": last - len(curves[0]) + i + 1} | spread(values))
    return _frame(long, [*_PLACE, "tasks", *_SPREAD])


def _curve(matrix: metrics.Matrix) -> list[float]:
    if len(matrix) == 1:
        return [metrics.final_average_accuracy(matrix)]
    return [sum(row[: t + 1]) / (t + 1) for t, row in enumerate(matrix)]


def matrix(plan: Plan, table: Table, rows: Rows) -> pd.DataFrame:
    """The mean accuracy, per cent, on task `evaluated` after training task `trained`.

    Every task, seen or not. Joint, which has no order of tasks, is absent.
    """
    long = []
    for place, runs in _cells(table, rows):
        if place["method"] == "joint":
            continue
        matrices = [tables.accuracy(row, place["protocol"]) for row in runs]
        for t in range(len(matrices[0])):
            for i in range(len(matrices[0][t])):
                values = [one[t][i] for one in matrices]
                at = {"trained": t + 1, "evaluated": i + 1, "n": len(runs)}
                long.append(place | at | {"mean": statistics.mean(values)})
    return _frame(long, [*_PLACE, "trained", "evaluated", "n", "mean"])


def final(plan: Plan, table: Table, rows: Rows) -> pd.DataFrame:
    """The final average accuracy of each cell, per cent, and how many of its runs diverged.

    A cell whose runs all diverged has a row with n = 0.
    """
    long = []
    for cell in table.cells:
        values = [_faa(row, cell) for row in _finished(cell, rows).values()]
        diverged = _diverged(cell, rows)
        if values or diverged:
            long.append(_place(table, cell) | spread(values) | {"diverged": diverged})
    return _frame(long, [*_PLACE, *_SPREAD, "diverged"])


def fidelity(plan: Plan, table: Table, rows: Rows) -> pd.DataFrame:
    """What each variant changes of the final average accuracy, in points of per cent.

    The change is from the method as params.yaml has it (`base`, its mean), seed by seed, so `n` is
    the number of seeds that finished both. A variant whose runs all diverged has n = 0.
    """
    bases = {
        (cell.method, cell.buffer, cell.protocol): cell
        for cell in reversed(table.cells)  # the first of several that change nothing
        if unchanged(cell)
    }
    long = []
    for cell in table.cells:
        base = bases.get((cell.method, cell.buffer, cell.protocol))
        if base is None or cell is base:
            continue
        ours, theirs = _finished(cell, rows), _finished(base, rows)
        both = [seed for seed in ours if seed in theirs]
        changes = [_faa(ours[seed], cell) - _faa(theirs[seed], base) for seed in both]
        diverged = _diverged(cell, rows)
        if not theirs or not (changes or diverged):
            continue
        of = {
            "title": table.variants[str(cell.variant)],
            "base": statistics.mean([_faa(row, base) for row in theirs.values()]),
        }
        long.append(_place(table, cell) | of | spread(changes) | {"diverged": diverged})
    return _frame(long, [*_PLACE, "title", "base", *_SPREAD, "diverged"])


def unchanged(cell: Cell) -> bool:
    """Whether a cell's variant changes nothing: a run's name says the variant where it does."""
    return all(cell.variant not in run.split(".") for run in cell.runs.values())


def initialization(plan: Plan, table: Table, rows: Rows) -> pd.DataFrame:
    """What is left of the initialization after `tasks` tasks, 0 before training, by `layer`.

    `quantity` is `cka`, from 0 to 1, with the network before training, or `nearest_neighbours`, the
    accuracy on the source's images in per cent. Of the cells whose runs were probed.
    """
    long, seen = [], set()
    for place, runs in _cells(table, rows):
        probed = [row for row in runs if row["cka"]]
        names = tuple(row["run"] for row in probed)
        if not probed or names in seen:  # one run serves both protocols
            continue
        seen.add(names)
        for quantity, layers in (("cka", LAYERS), ("nearest_neighbours", LAYERS[-2:])):
            for tasks in range(len(probed[0][quantity])):
                for i, layer in enumerate(layers):
                    at = {"quantity": quantity, "layer": layer, "tasks": tasks}
                    values = [row[quantity][tasks][i] for row in probed]
                    long.append(place | at | spread(values))
    return _frame(long, [*_PLACE, "quantity", "layer", "tasks", *_SPREAD])


def shares(plan: Plan, table: Table, rows: Rows) -> pd.DataFrame:
    """The final average accuracy by the share of the buffer, in per cent, for the source's images.

    TwF's, where the study has it for the same benchmark, source, buffer and protocol, has no share.
    """
    long = []
    places = {(cell.buffer, cell.protocol) for cell in table.cells}
    own = [cell for cell in table.cells if cell.method != "twf"]
    for cell in [*own, *_twf(plan, table)]:
        values = [_faa(row, cell) for row in _finished(cell, rows).values()]
        if values and (cell.buffer, cell.protocol) in places:
            share = None if cell.method == "twf" else 100 * _share(plan, cell)
            label = METHODS[cell.method].title
            place = _place(table, cell) | {"label": label}
            long.append(place | {"share": share} | spread(values))
    frame = _frame(long, [*_PLACE, "share", *_SPREAD])
    return frame if frame["share"].notna().any() else frame[:0]


def _twf(plan: Plan, table: Table) -> list[Cell]:
    """TwF's cells as params.yaml has it, on a table's benchmark and source; each place once."""
    found = {
        (cell.buffer, cell.protocol): cell.model_copy(update={"variant": None})
        for other in plan.tables.values()
        if (other.benchmark, other.source) == (table.benchmark, table.source)
        for cell in other.cells
        if cell.method == "twf" and unchanged(cell)
    }
    return list(found.values())


def _share(plan: Plan, cell: Cell) -> float:
    run = plan.runs[next(iter(cell.runs.values()))]
    return float(getattr(run.hyperparameters, "share", 0.0))


def costs(plan: Plan, table: Table, rows: Rows) -> pd.DataFrame:
    """The final average accuracy beside what it costs: buffer, memory and time.

    `peak_memory_mib` is the mean over runs of the most that a run held at once: PyTorch's tensors
    on a GPU, the whole process on a CPU. `seconds` is the mean time of a whole run, evaluation
    included; a probed run's time is left out, as the probes take part of it.
    """
    long = []
    for place, runs in _cells(table, rows):
        values = [
            metrics.final_average_accuracy(tables.accuracy(r, place["protocol"])) for r in runs
        ]
        cost = {
            "peak_memory_mib": statistics.mean([row["peak_memory_mib"] for row in runs]),
            "seconds": statistics.mean([row["seconds"] for row in runs if not row["cka"]]),
            "device": "; ".join(sorted({row["device"] for row in runs})),
        }
        long.append(place | spread(values) | cost)
    return _frame(long, [*_PLACE, *_SPREAD, "peak_memory_mib", "seconds", "device"])


def losses(plan: Plan, table: Table, rows: Rows) -> pd.DataFrame:
    """The loss in each `epoch`, counted over all tasks, of training task `task`: means over runs.

    `term` is a part of the loss, weighted as in it, or `loss`, their sum where there are several.
    Of the runs of the table's first protocol.
    """
    long = []
    for place, runs in _cells(table, rows):
        if place["protocol"] != table.protocols[0]:
            continue
        for epoch, entries in enumerate(zip(*(row["history"] for row in runs), strict=True)):
            at = place | {"task": entries[0]["phase"] + 1, "epoch": epoch + 1, "n": len(runs)}
            parts = [dict(entry["terms"]) for entry in entries]
            for term in parts[0]:
                values = [part[term] for part in parts]
                long.append(at | {"term": term, "mean": statistics.mean(values)})
            if len(parts[0]) > 1:
                values = [entry["loss"] for entry in entries]
                long.append(at | {"term": "loss", "mean": statistics.mean(values)})
    return _frame(long, [*_PLACE, "task", "epoch", "term", "n", "mean"])


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Number, mean, lowest and highest of some runs' values; the ends are None for one run."""
    ends = (min(values), max(values)) if len(values) > 1 else (None, None)
    return {"n": len(values), "mean": statistics.mean(values), "low": ends[0], "high": ends[1]}


def _cells(table: Table, rows: Rows) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The place of each cell with finished runs, and these."""
    for cell in table.cells:
        if runs := list(_finished(cell, rows).values()):
            yield _place(table, cell), runs


def _place(table: Table, cell: Cell) -> dict[str, Any]:
    """Where a cell stands, and what its row is called."""
    label = table.rows.get((cell.method, cell.variant), METHODS[cell.method].title)
    place = cell.model_dump(include={"method", "variant", "buffer", "protocol"})
    return place | {"label": label}


def _finished(cell: Cell, rows: Rows) -> dict[int, dict[str, Any]]:
    """A cell's finished runs by seed."""
    found = {seed: rows[run] for seed, run in cell.runs.items() if run in rows}
    return {seed: row for seed, row in found.items() if row["status"] == "finished"}


def _diverged(cell: Cell, rows: Rows) -> int:
    return sum(rows[run]["status"] == "diverged" for run in cell.runs.values() if run in rows)


def _faa(row: dict[str, Any], cell: Cell) -> float:
    return metrics.final_average_accuracy(tables.accuracy(row, cell.protocol))


def _frame(long: Iterable[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    """The rows as a frame whose columns have the same types whatever is in it."""
    frame = pd.DataFrame(list(long), columns=columns)
    text = {
        "method",
        "variant",
        "label",
        "protocol",
        "title",
        "quantity",
        "layer",
        "device",
        "term",
    }
    whole = {"buffer", "tasks", "trained", "evaluated", "n", "diverged", "task", "epoch"}
    types = {name: "str" if name in text else "Int64" for name in columns if name in text | whole}
    return frame.astype(dict.fromkeys(columns, "float64") | types)
