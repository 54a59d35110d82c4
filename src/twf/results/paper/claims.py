"""The paper's claims (`claims.yaml`), evaluated on its own numbers and on a study's.

A claim says that each mean of a family is positive: of a difference between cells, or of several
differences. Its value is the least of these means. On the paper's numbers, which have no seeds, a
claim holds where the value is positive. On ours, each mean is over the seeds that all cells of the
family that have run have finished, and the interval is that of `statistics.least`. A mean is
missing where one of its cells has no finished run, or one that diverged.

    holds            the interval lies above 0, and no mean is missing or untuned
    does not hold    the interval lies below 0; the note names the means that Holm's procedure finds
                     below 0
    smaller          undecided, but the interval lies below the paper's value of these differences
    undecided        anything else: also with a single seed, which has no interval, and where a
                     hyperparameter that the paper does not print has not been searched for
    not run          no mean has a finished seed in all its cells

So with probability of at most 2.5 % a claim is said to hold that does not, and with at most 2.5 %
not to hold though it does: the family is that of one claim, not of all claims together.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from twf.results import statistics
from twf.results.printed import PLACE, CellKey, key_at
from twf.study.reading import plain_values
from twf.study.types import Strict

Keys = Collection[CellKey]  # of the paper's numbers, or of a study's cells and what was probed
Values = Mapping[CellKey, Mapping[int, float]]  # by cell and seed, empty where none is
VERDICTS = ("holds", "smaller", "does not hold", "undecided", "not run")


class Contest(Strict):
    """Differences: cells like `of`, each over those that differ from it as `over` says."""

    of: dict[str, Any] = Field(default_factory=dict)
    over: Sequence[dict[str, Any]] = ()
    minus: dict[str, Any] | None = None


class Claim(Contest):
    """A statement of the paper, as differences that are positive: see `claims.yaml`."""

    name: str
    statement: str
    contests: Sequence[Contest] = ()  # where there are several
    mean_of: Sequence[str] | None = None
    unit: str = "FAA"

    def family(self, keys: Keys) -> "list[list[Difference]]":
        """The differences, in the groups whose means are to be positive."""
        groups: dict[object, list[Difference]] = {}
        for contest in self.contests or (self,):
            for difference in differences(contest, keys):
                alike: object = difference
                if self.mean_of is not None:
                    alike = tuple(difference.column(name) for name in self.mean_of)
                groups.setdefault(alike, []).append(difference)
        return list(groups.values())


class Difference(NamedTuple):
    """The sum of some cells' values minus that of as many others."""

    above: tuple[CellKey, ...]
    below: tuple[CellKey, ...]

    def column(self, name: str) -> object:
        """A column of the first cell above; `over` is the row of the first below."""
        return self.below[0].row if name == "over" else getattr(self.above[0], name)

    def __str__(self) -> str:
        """In words, with the first cell's place."""
        above, below = (" and ".join(key.row for key in keys) for keys in self)
        return f"{above} over {below}, {self.above[0].place}"


def load() -> list[Claim]:
    """The claims in the order of the paper."""
    path = Path(__file__).with_suffix(".yaml")
    values = plain_values(path.read_text(encoding="utf-8"), path)
    return TypeAdapter(list[Claim]).validate_python(values)


# Which cells a claim is about


def differences(contest: Contest, keys: Keys) -> Iterator[Difference]:
    """Those of a contest, of the cells that there are.

    A cell that lacks what it is to be over, whole or in part, is left out: TwF is not said to be
    first among all methods where only some have run.
    """
    wanted = {"variant": "", "quantity": "faa"} | contest.of
    for key in keys:
        if not all(getattr(key, name) in _listed(value) for name, value in wanted.items()):
            continue
        rivals = [(over, _changed(key, over, keys)) for over in contest.over]
        if not all(cells for _, cells in rivals):
            continue
        for over, cells in rivals:
            for below in cells:
                if contest.minus is None:
                    yield Difference((key,), (below,))
                    continue
                for above in _changed(key, contest.minus, keys):
                    for other in _changed(above, over, keys):
                        yield Difference((key, other), (below, above))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _changed(key: CellKey, change: Mapping[str, Any], keys: Keys) -> list[CellKey]:
    """The cells that differ from one as `change` says, as far as there are such."""
    values = product(*map(_listed, change.values()))
    changed = (key._replace(**dict(zip(change, each, strict=True))) for each in values)
    return [cell for cell in changed if cell in keys and cell != key]


# Whether it holds


def evaluate(
    claim: Claim,
    values: Values,
    printed: Mapping[CellKey, float],
    untuned: Mapping[CellKey, str],
    diverged: Mapping[CellKey, int],
) -> dict[str, Any]:
    """A claim on measured values, as a row of `estimates.SCHEMA`.

    `untuned` are hyperparameters that nobody has searched for, and `diverged` numbers of runs, by
    cell. The note says what is missing, or what contradicts the claim.
    """
    family = claim.family(values.keys())
    done = [
        group
        for group in family
        if _seeds(group, values) and not any(diverged.get(cell) for cell in _cells(group))
    ]
    lost = sum(diverged.get(cell, 0) for cell in _cells(chain(*family)))
    row: dict[str, Any] = {"n": 0, "n_planned": len(family), "diverged": lost, "rule": "least"}
    row["paper"] = _printed_value(claim.family(printed.keys()), printed)
    missing = [f"runs that diverged: {lost}"] if lost else []
    if not done:
        note = missing[0] if lost else "all runs" if family else "no such cell in this study"
        return row | {"verdict": "undecided" if lost else "not run", "note": note}
    left, seeds = len(family) - len(done), _seeds(chain(*done), values)
    names = sorted({untuned[cell] for cell in _cells(chain(*done)) if cell in untuned})
    missing += [f"{left} of {len(family)} means"] if left else []
    missing += ["a second seed in all cells"] if len(seeds) < 2 else []
    missing += [f"a search for {name}" for name in names]
    row |= {"n": len(seeds), "verdict": "undecided", "note": "; ".join(missing)}
    if not seeds:
        return row
    means = [_mean(group, values, seeds) for group in done]
    if len(seeds) < 2:
        return row | {"mean": min(mean.mean for mean in means)}
    least = statistics.least(means, len(family))
    row |= least._asdict()
    if least.low > 0 and not missing:
        row |= {"verdict": "holds"}
    elif least.high < 0 and not names:
        against = compress(done, statistics.below_zero(means, len(family)))
        row |= {"verdict": "does not hold"}
        row |= {"note": f"contradicted by {'; '.join(map(_in_words, against))}"}
    elif not missing:
        size = _printed_value(family, printed)
        smaller = size is not None and least.high < size
        row |= {"verdict": "smaller"} if smaller else {"note": "more seeds"}
    return row


def _mean(group: Sequence[Difference], values: Values, seeds: list[int]) -> statistics.Sum:
    """The mean of some differences.

    The cells of one method with one buffer are added by seed: their runs share first weights and
    the order of images. Runs of different methods, buffers or benchmarks are independent.
    """
    parts: dict[tuple[Any, ...], NDArray[np.float64]] = {}
    for key, weight in _weights(group).items():
        own = np.array([values[key][seed] for seed in seeds], np.float64)
        place = key.benchmark, key.source, key.method, key.buffer
        parts[place] = parts.get(place, np.zeros(len(seeds))) + weight * own
    return statistics.total(list(parts.values()))


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
    if not sums or not all(key in printed for weights in sums for key in weights):
        return None
    return round(min(sum(w * printed[key] for key, w in weights.items()) for weights in sums), 9)


def _in_words(group: Sequence[Difference]) -> str:
    more = f", and {len(group) - 1} more on average" if len(group) > 1 else ""
    return f"{group[0]}{more}"


def _cells(group: Iterable[Difference]) -> set[CellKey]:
    """The cells of some differences, whatever was probed of them."""
    return {
        key_at(key[: len(PLACE)]) for difference in group for side in difference for key in side
    }


def _seeds(group: Iterable[Difference], values: Values) -> list[int]:
    """The seeds that all cells of some differences have finished."""
    cells = [set(values[key]) for difference in group for side in difference for key in side]
    return sorted(set.intersection(*cells)) if cells else []
