"""The paper's claims (`claims.yaml`), evaluated on its own numbers and on a study's.

A claim says that each mean of a family is positive: of a difference between cells, or of several
differences. Its value is the least of these means. On the paper's numbers, which have no seeds, a
claim holds where the value is positive. On ours, each mean is over the seeds that all cells of the
family that have run have finished, and the interval is that of `statistics.least`. A mean is
missing where one of its cells has no finished run, or one that diverged.

    holds            the interval lies above 0, and no mean is missing or untuned
    does not hold    the interval lies below 0; the note names the means that are
    smaller          undecided, but the interval lies below the paper's value of these differences
    undecided        anything else: also with a single seed, which has no interval, and where a
                     hyperparameter that the paper does not print has not been searched for
    not run          no mean has a finished seed in all its cells

So with probability of at most 2.5 % a claim is said to hold that does not, and with at most 2.5 %
not to hold though it does: the family is that of one claim, not of all claims together.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, product
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pydantic import Field, TypeAdapter

from twf.results import statistics
from twf.results.printed import PLACE, CellKey, key_at
from twf.study.reading import plain_values
from twf.study.types import Strict

Keys = Collection[CellKey]  # of the paper's numbers, or of a study's cells and what was probed
Values = Mapping[CellKey, Mapping[int, float]]  # by cell and seed, empty where none is
VERDICTS = ("holds", "smaller", "does not hold", "undecided", "not run")


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


class Contest(Strict):
    """Differences: cells like `of`, each over those that differ from it as `over` says."""

    of: dict[str, Any] = Field(default_factory=dict)
    over: Sequence[dict[str, Any]] = ()
    minus: dict[str, Any] | None = None

    def differences(self, keys: Keys) -> Iterator[Difference]:
        """Those of the cells that there are.

        A cell that lacks what it is to be over, whole or in part, is left out: TwF is not said to
        be first among all methods where only some have run.
        """
        wanted = {"variant": "", "quantity": "faa"} | self.of
        for key in keys:
            if any(getattr(key, name) not in _listed(value) for name, value in wanted.items()):
                continue
            rivals = [(over, _changed(key, over, keys)) for over in self.over]
            for over, cells in rivals if all(cells for _, cells in rivals) else ():
                for below in cells:
                    if self.minus is None:
                        yield Difference((key,), (below,))
                        continue
                    for above in _changed(key, self.minus, keys):
                        for other in _changed(above, over, keys):
                            yield Difference((key, other), (below, above))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _changed(key: CellKey, change: Mapping[str, Any], keys: Keys) -> list[CellKey]:
    """The cells that differ from one as `change` says, as far as there are such."""
    values = product(*map(_listed, change.values()))
    changed = (key._replace(**dict(zip(change, each, strict=True))) for each in values)
    return [cell for cell in changed if cell in keys and cell != key]


class Mean(NamedTuple):
    """A mean of differences: in words, and the weight of each cell in it."""

    words: str
    weights: dict[CellKey, float]


class Claim(Contest):
    """A statement of the paper, as differences that are positive: see `claims.yaml`."""

    name: str
    statement: str
    contests: Sequence[Contest] = ()  # where there are several
    mean_of: Sequence[str] | None = None
    unit: str = "FAA"

    def family(self, keys: Keys) -> list[Mean]:
        """The means that are to be positive."""
        groups: dict[object, list[Difference]] = {}
        for contest in self.contests or (self,):
            for each in contest.differences(keys):
                names = self.mean_of
                alike = each if names is None else tuple(each.column(name) for name in names)
                groups.setdefault(alike, []).append(each)
        return [_mean(group) for group in groups.values()]


def _mean(group: Sequence[Difference]) -> Mean:
    more = f", and {len(group) - 1} more on average" if len(group) > 1 else ""
    weights: dict[CellKey, float] = {}
    for above, below in group:
        for sign, side in ((1, above), (-1, below)):
            for key in side:
                weights[key] = weights.get(key, 0.0) + sign / len(group)
    return Mean(f"{group[0]}{more}", {key: weight for key, weight in weights.items() if weight})


def load() -> list[Claim]:
    """The claims in the order of the paper."""
    path = Path(__file__).with_suffix(".yaml")
    values = plain_values(path.read_text(encoding="utf-8"), path)
    return TypeAdapter(list[Claim]).validate_python(values)


def evaluate(
    claim: Claim,
    values: Values,
    printed: Mapping[CellKey, float],
    untuned: Mapping[CellKey, str],
) -> dict[str, Any]:
    """A claim on measured values, as a row of `estimates.SCHEMA`.

    `untuned` are hyperparameters that nobody has searched for, by cell. The note says what is
    missing, or what contradicts the claim.
    """
    family = claim.family(values.keys())
    done = [mean for mean in family if _seeds([mean], values)]
    paper = _printed_value(claim.family(printed.keys()), printed)
    row: dict[str, Any] = {"n": 0, "n_planned": len(family), "rule": "least", "paper": paper}
    if not done:
        lost = "each mean lacks a run, or has one that diverged"
        note = lost if family else "no such cell in this study"
        return row | {"verdict": "not run", "note": note}
    left, seeds = len(family) - len(done), _seeds(done, values)
    # whatever was probed of a cell
    cells = {key_at(key[: len(PLACE)]) for mean in done for key in mean.weights}
    names = sorted({untuned[cell] for cell in cells if cell in untuned})
    missing = [f"{left} of {len(family)} means"] if left else []
    missing += ["a second seed in all cells"] if len(seeds) < 2 else []
    missing += [f"a search for {name}" for name in names]
    row |= {"n": len(seeds), "verdict": "undecided", "note": "; ".join(missing)}
    if not seeds:
        return row
    means = [_estimate(mean, values, seeds) for mean in done]
    if len(seeds) < 2:
        return row | {"mean": min(mean.mean for mean in means)}
    least, against = statistics.least(means, len(family))
    row |= least._asdict()
    if least.low > 0 and not missing:
        row |= {"verdict": "holds"}
    elif any(against) and not names:
        words = "; ".join(mean.words for mean in compress(done, against))
        row |= {"verdict": "does not hold", "note": f"contradicted by {words}"}
    elif not missing:
        size = _printed_value(family, printed)
        smaller = size is not None and least.high < size
        row |= {"verdict": "smaller"} if smaller else {"note": "more seeds"}
    return row


def _seeds(means: Iterable[Mean], values: Values) -> list[int]:
    """The seeds that all cells of some means have finished."""
    return sorted(set.intersection(*(set(values[key]) for mean in means for key in mean.weights)))


def _estimate(mean: Mean, values: Values, seeds: list[int]) -> statistics.Estimate:
    """The cells of one method with one buffer are added by seed.

    Their runs share first weights and the order of images. Runs of different methods, buffers or
    benchmarks are independent.
    """
    parts: dict[tuple[Any, ...], pd.Series] = {}
    for key, weight in mean.weights.items():
        place = key.benchmark, key.source, key.method, key.buffer
        parts[place] = parts.get(place, 0.0) + weight * pd.Series(values[key])[seeds]
    return statistics.total(list(parts.values()), "least")


def _printed_value(family: Sequence[Mean], printed: Mapping[CellKey, float]) -> float | None:
    """The least of some means on the paper's numbers; None where it does not print all of them."""
    try:
        sums = [sum(w * printed[key] for key, w in mean.weights.items()) for mean in family]
    except KeyError:
        return None
    return round(min(sums), 9) if sums else None
