"""Differences between cells of a study, with their errors: one rule for gains and claims.

    one method,       The runs of a seed have first weights and the order of images in common: its
    one buffer        variants are subtracted by seed, and what a run gives twice, under two
                      protocols or after two tasks, within the run. Student's interval.
    anything else     Runs of different methods, buffers or benchmarks are independent, also those
                      of one seed: Welch's interval.

`estimates` is the rule.
Only seeds that all cells of a difference have finished count. A residual pooled over an
experiment's variants would have more degrees of freedom, but their variances differ too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from twf.results import statistics
from twf.results.frame import Results
from twf.results.printed import PLACE, CellKey, key_at
from twf.results.statistics import Estimate

Values = Mapping[CellKey, Mapping[int, float]]  # by cell and seed, empty where none is


class Contrast(NamedTuple):
    """A weighted sum of cells, in their unit; null where there are too few seeds."""

    n: int  # seeds that all cells have finished
    mean: float
    error: float  # the standard error
    freedom: float  # its degrees of freedom
    low: float  # the ends of the 95 % interval
    high: float

    @property
    def gain(self) -> dict[str, float]:
        """As columns of a row of gains: `n`, and the others as `gain_mean` and so on."""
        return {"n" if name == "n" else f"gain_{name}": of for name, of in self._asdict().items()}


def of_cells(results: Results, score: str = "faa") -> dict[CellKey, dict[int, float]]:
    """One of `frame.SCORES` of each cell of a study by seed, of its finished runs."""
    cells = results.by_place.groupby(PLACE, sort=False)
    return {key_at(place): by_seed(members, score) for place, members in cells}


@dataclass(frozen=True)
class Marks:
    """What has to be said of a difference that its number does not show."""

    # By cell: seed, status and precision of its runs
    runs: Mapping[CellKey, Sequence[tuple[int, str, str | None]]] = field(default_factory=dict)

    @classmethod
    def of_results(cls, results: Results) -> Marks:
        """Those of the cells of a study."""
        cells = results.by_place.groupby(PLACE, sort=False)[["seed", "status", "precision"]]
        return cls({key_at(p): list(of.itertuples(index=False, name=None)) for p, of in cells})

    def diverged(self, keys: Iterable[CellKey]) -> int:
        """How many runs of some cells diverged: a verdict that needs one of them is undecided."""
        return sum(status == "diverged" for _, status, _ in self._of(keys))

    def precisions(self, keys: Iterable[CellKey], seeds: Iterable[int]) -> list[str]:
        """Those of the cells' runs of some seeds: several where they differ."""
        used = set(seeds)
        found = {of for seed, _, of in self._of(keys) if seed in used}
        return sorted(of for of in found if isinstance(of, str))

    def _of(self, keys: Iterable[CellKey]) -> Iterator[tuple[int, str, str | None]]:
        cells = dict.fromkeys(key_at(key[: len(PLACE)]) for key in keys)
        return chain.from_iterable(self.runs.get(cell, ()) for cell in cells)


UNMARKED = Marks()


def by_seed(members: pd.DataFrame, score: str = "faa") -> dict[int, float]:
    """A score of a cell's rows of `Results.members` that have one, by seed."""
    pairs = zip(members["seed"], members[score], strict=True)
    return {seed: value for seed, value in pairs if not pd.isna(value)}


def difference(values: Values, one: CellKey, other: CellKey) -> Contrast:
    """A cell minus another one."""
    return contrast(values, {one: 1.0, other: -1.0})


def contrast(values: Values, weights: Mapping[CellKey, float]) -> Contrast:
    """A sum of cells by their weights."""
    keys, seeds = list(weights), shared(values, weights)
    if not seeds:
        return Contrast(0, *[float("nan")] * 5)
    estimate = estimates(np.array([list(weights.values())]), keys, stacked(values, keys, seeds))
    return Contrast(len(seeds), *(float(part[0]) for part in (*estimate, *estimate.ends())))


def shared(values: Values, keys: Iterable[CellKey]) -> list[int]:
    """The seeds that all of some cells have."""
    return sorted(set.intersection(*(set(values.get(key, ())) for key in keys)))


def stacked(values: Values, keys: Sequence[CellKey], seeds: Sequence[int]) -> NDArray[np.float64]:
    """The values of some cells and seeds as an array: float64 `[key, seed]`."""
    return np.array([[values[key][seed] for seed in seeds] for key in keys], np.float64)


def estimates(
    weights: NDArray[np.float64], keys: Sequence[CellKey], values: NDArray[np.float64]
) -> Estimate:
    """Weighted sums `[mean, key]` of cells whose values are `[..., key, seed]`: `[..., mean]`."""
    sums = []
    for row in weights:
        of_methods: dict[Any, list[int]] = {}
        for i, key in enumerate(keys):
            if row[i]:
                place = key.benchmark, key.source, key.method, key.buffer
                of_methods.setdefault(place, []).append(i)
        sums.append(
            statistics.total(
                [
                    statistics.student((row[of, None] * values[..., of, :]).sum(-2))
                    for of in of_methods.values()
                ]
            )
        )
    mean, error, freedom = (np.stack(parts, axis=-1) for parts in zip(*sums, strict=True))
    return Estimate(np.round(mean, 9), error, freedom)  # the sums of cells that are alike are alike
