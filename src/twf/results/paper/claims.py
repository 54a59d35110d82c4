"""The paper's claims (`claims.yaml`), evaluated on its own numbers and on a study's.

A claim says that each mean of a family is positive: of a difference between cells, or of the mean
of some. Its value is the least of these means. On the paper's numbers, which have no seeds, a claim
holds where the value is positive. On ours, each mean is over the seeds that all cells of the
differences that have run have finished, and the interval is that of `statistics.least`.

    holds            the interval lies above 0, and none of the family is missing or untuned; a
                     difference with a cell of which a run diverged is missing
    control passes   so it does, and for the claim's control too: something else explains it;
                     without all of the control, `undecided`
    does not hold    the interval lies below 0, and (where means are of several) none of theirs is
                     missing; the note names the means that Holm's procedure finds below 0
    smaller          undecided, but the interval lies below the paper's value of these differences
    undecided        anything else: also with a single seed, which has no interval, and where a
                     hyperparameter that the paper does not print has not been searched for
    not run          no difference has a finished seed in all its cells

So with probability of at most 2.5 % a claim is said to hold that does not, and with at most 2.5 %
not to hold though it does: the family is that of one claim, not of all claims together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from twf.results import statistics
from twf.results.printed import PLACE, CellKey, key_at
from twf.results.statistics import Least
from twf.study.reading import plain_values
from twf.study.types import Strict

Keys = Collection[CellKey]  # of the paper's numbers, or of a study's cells and what was probed
Values = Mapping[CellKey, Mapping[int, float]]  # by cell and seed, empty where none is
MAIN = ("er", "co2l", "icarl", "derpp", "er-ace", "twf")  # those with a buffer in Tables 1-3
CONTROL = "share-0-wide"  # DER++ with the source's classes in its head and none of its images

# What the groups of claims are about
ABOUT = {
    "performance": "how well TwF does",
    "mechanism": "why it does",
    "incidental": "other methods",
}
VERDICTS = ("holds", "control passes", "smaller", "does not hold", "undecided", "not run")


class Contest(Strict):
    """Differences: cells like `of`, each over those that differ from it as `over` says."""

    of: dict[str, Any]
    over: Sequence[dict[str, Any]]
    minus: dict[str, Any] | None = None
    main: bool = False


class Claim(Strict):
    """A statement of the paper, as differences that are positive: see `claims.yaml`."""

    group: Literal["performance", "mechanism", "incidental"]
    name: str
    statement: str
    of: dict[str, Any] | None = None  # these four where there is one contest
    over: Sequence[dict[str, Any]] = ()
    minus: dict[str, Any] | None = None
    main: bool = False
    contests: Sequence[Contest] = ()
    mean_of: Sequence[str] | None = None
    unit: str = "FAA"
    benchmarks: Sequence[str] = ()  # those that it is of; all where it names none
    control: Sequence[Contest] = ()

    def family(self, keys: Keys, control: bool = False) -> list[list[Difference]]:
        """The differences, or the control's, in the groups whose means are to be positive."""
        groups: dict[object, list[Difference]] = {}
        contests = self.contests
        if self.of is not None:
            contests = (Contest(of=self.of, over=self.over, minus=self.minus, main=self.main),)
        for contest in self.control if control else contests:
            for difference in differences(contest, keys):
                if not self.benchmarks or difference.cell.benchmark in self.benchmarks:
                    alike: object = difference
                    if self.mean_of is not None:
                        alike = tuple(difference.column(name) for name in self.mean_of)
                    groups.setdefault(alike, []).append(difference)
        return list(groups.values())


class Difference(NamedTuple):
    """The sum of some cells' values minus that of as many others."""

    above: tuple[CellKey, ...]
    below: tuple[CellKey, ...]

    @property
    def cell(self) -> CellKey:
        """Where it is taken: the first cell above."""
        return self.above[0]

    def column(self, name: str) -> object:
        """A column of the first cell above; `over` is the row of the first below."""
        return self.below[0].row if name == "over" else getattr(self.cell, name)

    def __str__(self) -> str:
        """In words, with the first cell's place."""
        above, below = (" and ".join(key.row for key in keys) for keys in self)
        return f"{above} over {below}, {self.cell.place}"


def load() -> list[Claim]:
    """The claims in the order of the paper."""
    path = Path(__file__).with_suffix(".yaml")
    values = plain_values(path.read_text(encoding="utf-8"), path)
    return TypeAdapter(list[Claim]).validate_python(values)


# Which cells a claim is about


def differences(contest: Contest, keys: Keys) -> Iterator[Difference]:
    """Those of a contest, of the cells that there are; a difference that lacks a cell is none."""
    wanted = ({"variant": "", "quantity": "faa"} | contest.of).items()
    ordered = sorted(wanted, key=_is_selected)  # what looks at all keys goes last
    for key in keys:
        if not all(getattr(key, n) in _values(key, n, value, keys) for n, value in ordered):
            continue
        if contest.main and not _of_all_main(key, keys):
            continue
        for over in contest.over:
            for below in _changed(key, over, keys):
                if contest.minus is None:
                    yield Difference((key,), (below,))
                    continue
                for above in _changed(key, contest.minus, keys):
                    for other in _changed(above, over, keys):
                        yield Difference((key, other), (below, above))


def _values(key: CellKey, column: str, wanted: Any, keys: Keys) -> Collection[Any]:
    """The values that a column may have: `wanted`, or what its word selects beside a cell."""
    if not _is_selected((column, wanted)):
        return wanted if isinstance(wanted, list) else (wanted,)
    there = sorted(
        {getattr(of, column) for of in keys if of._replace(**{column: getattr(key, column)}) == key}
    )
    if column == "buffer":  # of several with which all main methods are
        there = [size for size in there if _of_all_main(key._replace(buffer=size), keys)]
        there = there if len(there) > 1 else []
    return _SELECTED[column, wanted](there)


def _is_selected(item: tuple[str, Any]) -> bool:
    return isinstance(item[1], str) and item in _SELECTED


_SELECTED: dict[tuple[str, str], Callable[[list[Any]], list[Any]]] = {
    ("buffer", "smallest"): lambda there: there[:1],
    ("buffer", "largest"): lambda there: there[-1:],
    ("tasks", "trained"): lambda there: [tasks for tasks in there if tasks],
    ("tasks", "later"): lambda there: [tasks for tasks in there if tasks > 1],
    ("tasks", "last"): lambda there: there[-1:],
    # all but the control; the method as it is where it has none
    ("variant", "each"): lambda there: (
        [name for name in there if name and name != CONTROL]
        or [name for name in there if name != CONTROL]
    ),
}


def _changed(key: CellKey, change: Mapping[str, Any], keys: Keys) -> list[CellKey]:
    """The cells that differ from one as `change` says, as far as there are such."""
    changed = [key]
    for name, wanted in change.items():
        changed = [
            of._replace(**{name: value})
            for of in changed
            for value in _values(of, name, wanted, keys)
        ]
    return [of for of in changed if of in keys and of != key]


def _of_all_main(key: CellKey, keys: Keys) -> bool:
    return all(key._replace(method=method) in keys for method in MAIN)


# Whether it holds


def evaluate(
    claim: Claim,
    values: Values,
    printed: Mapping[CellKey, float],
    untuned: Mapping[CellKey, str],
    diverged: Mapping[CellKey, int],
) -> dict[str, Any]:
    """A claim on measured values, as a row of `estimates.COLUMNS`.

    `untuned` are hyperparameters that nobody has searched for, and `diverged` numbers of runs, by
    cell. The note says what is missing, or what contradicts the claim.
    """
    family = claim.family(values.keys())
    able = [[d for d in group if not _count(diverged, [d])] for group in family]
    run = [[d for d in group if _seeds([d], values)] for group in able]
    planned, done = list(chain(*family)), list(chain(*run))
    lost = _count(diverged, planned)
    row: dict[str, Any] = {
        "n": 0,
        "n_planned": len(planned),
        "diverged": lost,
        "rule": "least",
        "paper": _printed_value(claim.family(printed.keys()), printed),
    }
    said = [f"runs that diverged: {lost}"] if lost else []
    if not done:
        note = said[0] if said else "all runs" if family else "no such cell in this study"
        return row | {"verdict": "undecided" if lost else "not run", "note": note}
    names = sorted({untuned[cell] for cell in _cells(done) if cell in untuned})
    seeds = _seeds(done, values)
    missing = [
        *([f"{len(planned) - len(done)} differences"] if len(done) < len(planned) else []),
        *(["a second seed in all cells"] if len(seeds) < 2 else []),
        *(f"a search for {name}" for name in names),
        *said,
    ]
    row |= {"n": len(seeds), "verdict": "undecided", "note": "; ".join(missing)}
    if not seeds:
        return row
    groups = [group for group in run if group]
    row["mean"] = min(float(part.mean) for part in _means(groups, values, seeds))
    if len(seeds) < 2:
        return row
    least = _least(groups, values, seeds, len(family))
    row |= {"mean": least.mean, "low": least.low, "high": least.high, "df": least.df}
    whole = all(len(group) == len(ran) for group, ran in zip(family, run, strict=True) if ran)
    if not names and least.low > 0 and len(done) == len(planned):
        row |= _beside_control(claim, values, diverged)
    elif not names and least.high < 0 and whole:
        below = statistics.below_zero(_means(groups, values, seeds), len(family))
        against = (_in_words(group) for group in compress(groups, below))
        row |= {"verdict": "does not hold", "note": f"contradicted by {'; '.join(against)}"}
    elif not missing:
        size = _printed_value(family, printed)
        smaller = size is not None and least.high < size
        row |= {"verdict": "smaller", "note": ""} if smaller else {"note": "more seeds"}
    return row


def _beside_control(
    claim: Claim, values: Values, diverged: Mapping[CellKey, int]
) -> dict[str, str]:
    """The verdict on a claim whose own interval lies above 0, and the note.

    The claim holds where the study has no such cell as the control's.
    """
    family = claim.family(values.keys(), control=True)
    if not family:
        note = "its control: no such cell in this study" if claim.control else ""
        return {"verdict": "holds", "note": note}
    controls = list(chain(*family))
    seeds = _seeds(controls, values)
    if _count(diverged, controls) or len(seeds) < 2:
        note = "two seeds of all of its control, none of which diverged"
        return {"verdict": "undecided", "note": note}
    passes = _least(family, values, seeds, len(family)).low > 0
    return {"verdict": "control passes" if passes else "holds", "note": ""}


def _least(
    groups: Sequence[Sequence[Difference]], values: Values, seeds: list[int], planned: int
) -> Least:
    parts = _means(groups, values, seeds)
    return statistics.least(parts, planned)


def _means(
    groups: Sequence[Sequence[Difference]], values: Values, seeds: list[int]
) -> list[statistics.Sum]:
    """The mean of each group of differences.

    The cells of one method with one buffer are added by seed: their runs share first weights and
    the order of images. Runs of different methods, buffers or benchmarks are independent.
    """
    means = []
    for group in groups:
        parts: dict[tuple[Any, ...], NDArray[np.float64]] = {}
        for key, weight in _weights(group).items():
            own = np.array([values[key][seed] for seed in seeds], np.float64)
            place = key.benchmark, key.source, key.method, key.buffer
            parts[place] = parts.get(place, np.zeros(len(seeds))) + weight * own
        means.append(statistics.total(list(parts.values())))
    return means


def _weights(group: Sequence[Difference]) -> dict[CellKey, float]:
    """The weight of each cell in the mean of some differences; cells that cancel are left out."""
    weights: dict[CellKey, float] = {}
    for difference in group:
        for sign, side in zip((1, -1), difference, strict=True):
            for key in side:
                weights[key] = weights.get(key, 0.0) + sign / len(group)
    return {key: weight for key, weight in weights.items() if weight}


def _printed_value(
    family: Sequence[Sequence[Difference]], printed: Mapping[CellKey, float]
) -> float | None:
    """The least of some means on the paper's numbers; None where it does not print all of them."""
    sums = [_weights(group) for group in family]
    if not sums or not all(key in printed for key in _cells_and_probes(family)):
        return None
    least = min(sum(weight * printed[key] for key, weight in of.items()) for of in sums)
    return round(least, 9)


def _in_words(group: Sequence[Difference]) -> str:
    """A mean of differences, by the first of them."""
    more = f", and {len(group) - 1} more on average" if len(group) > 1 else ""
    return f"{group[0]}{more}"


def _cells_and_probes(groups: Sequence[Sequence[Difference]]) -> Iterator[CellKey]:
    return (key for group in groups for difference in group for side in difference for key in side)


def _cells(some: Sequence[Difference]) -> set[CellKey]:
    return {key_at(key[: len(PLACE)]) for key in _cells_and_probes([some])}


def _count(diverged: Mapping[CellKey, int], some: Sequence[Difference]) -> int:
    return sum(diverged.get(cell, 0) for cell in _cells(some))


def _seeds(some: Sequence[Difference], values: Values) -> list[int]:
    """The seeds that all cells of some differences have."""
    return sorted(set.intersection(*(set(values.get(k, ())) for k in _cells_and_probes([some]))))
