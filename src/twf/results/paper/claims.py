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

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import compress, product
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field, TypeAdapter

from twf.results import statistics
from twf.results.printed import CellKey
from twf.study.reading import plain_values
from twf.study.types import Strict

Keys = Collection[CellKey]  # of the paper's numbers, or of a study's cells and what was probed
Values = Mapping[CellKey, pd.Series]  # by cell and seed, empty where none is
Difference = tuple[CellKey, ...]  # the first minus the second; of four, less third minus fourth
Mean = tuple[str, dict[CellKey, float]]  # of differences: in words, and the weight of each cell
VERDICTS = ("holds", "smaller", "does not hold", "undecided", "not run")


class Contest(Strict):
    """Differences: cells like `of`, each over those that differ from it as `over` says."""

    of: dict[str, Any] = Field(default_factory=dict)
    over: Sequence[dict[str, Any]] = ()
    minus: dict[str, Any] = Field(default_factory=dict)

    def differences(self, keys: Keys) -> Iterator[Difference]:
        """Those of the cells that there are, but for a cell that lacks one that it is to be over.

        TwF is not said to be first among all methods where only some have run.
        """
        wanted = {"variant": "", "quantity": "faa"} | self.of
        for key in keys:
            if any(getattr(key, name) not in _listed(value) for name, value in wanted.items()):
                continue
            rivals = [(over, _changed(key, over, keys)) for over in self.over]
            for over, cells in rivals if all(cells for _, cells in rivals) else ():
                for below in cells:
                    if not self.minus:
                        yield key, below
                    for other in _changed(key, self.minus, keys):
                        for below_other in _changed(other, over, keys):
                            yield key, below, other, below_other


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _changed(key: CellKey, change: Mapping[str, Any], keys: Keys) -> list[CellKey]:
    """The cells that differ from one as `change` says, as far as there are such."""
    values = product(*map(_listed, change.values()))
    changed = (key._replace(**dict(zip(change, each, strict=True))) for each in values)
    return [cell for cell in changed if cell in keys and cell != key]


class Claim(Contest):
    """A statement of the paper, as differences that are positive: see `claims.yaml`."""

    name: str
    statement: str
    contests: Sequence[Contest] = ()  # where there are several
    mean_of: Sequence[str] | None = None
    unit: str = "FAA"

    def differences(self, keys: Keys) -> Iterator[Difference]:
        yield from super().differences(keys)  # none where there are contests
        for contest in self.contests:
            yield from contest.differences(keys)

    def family(self, keys: Keys) -> list[Mean]:
        """The means that are to be positive."""
        groups: dict[object, list[Difference]] = {}
        for each in self.differences(keys):
            columns = each[0]._asdict() | {"over": _row(each[1])}
            alike = each if self.mean_of is None else tuple(columns[name] for name in self.mean_of)
            groups.setdefault(alike, []).append(each)
        return [_mean(group) for group in groups.values()]


def _mean(group: Sequence[Difference]) -> Mean:
    weights: dict[CellKey, float] = {}
    for each in group:
        for sign, side in ((1, each[::3]), (-1, each[1:3])):
            for key in side:
                weights[key] = weights.get(key, 0.0) + sign / len(group)
    first, key = group[0], group[0][0]
    above, below = (" and ".join(map(_row, side)) for side in (first[::3], first[1:3]))
    buffer = f"buffer {key.buffer}" if key.buffer else "no buffer"
    more = f", and {len(group) - 1} more on average" if len(group) > 1 else ""
    words = f"{above} over {below}, {key.benchmark} from {key.source}, {buffer}, {key.protocol}"
    return words + more, {cell: weight for cell, weight in weights.items() if weight}


def _row(key: CellKey) -> str:
    """Method, variant and what was probed in words, with the names of params.yaml."""
    probed = f" in {key.layer} after {key.tasks} tasks" if key.layer else ""
    return f"{key.method} {key.variant}".rstrip() + probed


def load() -> list[Claim]:
    """The claims in the order of the paper."""
    path = Path(__file__).with_suffix(".yaml")
    values = plain_values(path.read_text(encoding="utf-8"), path)
    return TypeAdapter(list[Claim]).validate_python(values)


def evaluate(
    claim: Claim, values: Values, printed: Mapping[CellKey, float], untuned: Mapping[CellKey, str]
) -> dict[str, Any]:
    """A claim on measured values, as a row of `estimates.SCHEMA`.

    `paper` is of the cells that are measured, if it prints them all, else of all that it prints.
    Its note says what is missing (of `untuned`, by cell, a search), or what contradicts the claim.
    """
    family = claim.family(values)
    done = [mean for mean in family if _seeds([mean], values)]
    size = _printed_value(family, printed)
    paper = _printed_value(claim.family(printed), printed) if size is None else size
    row: dict[str, Any] = {"n": 0, "n_planned": len(family), "rule": "least", "paper": paper}
    if not done:
        lost = "each mean lacks a run, or has one that diverged"
        note = lost if family else "no such cell in this study"
        return row | {"verdict": "not run", "note": note}
    left, seeds = len(family) - len(done), _seeds(done, values)
    places = {key._replace(quantity="faa", layer="", tasks=0) for _, cells in done for key in cells}
    names = sorted({untuned.get(place, "") for place in places} - {""})
    missing = [f"{left} of {len(family)} means"] if left else []
    missing += ["a second seed in all cells"] if len(seeds) < 2 else []
    missing += [f"a search for {name}" for name in names]
    row |= {"n": len(seeds), "verdict": "undecided", "note": "; ".join(missing)}
    means = [_estimate(weights, values, seeds) for _, weights in done] if seeds else []
    if len(seeds) < 2:
        return row | {"mean": min((mean.mean for mean in means), default=None)}
    least, against = statistics.least(means, len(family))
    row |= least._asdict()
    if least.low > 0 and not missing:
        row |= {"verdict": "holds"}
    elif any(against) and not names:
        words = "; ".join(compress((words for words, _ in done), against))
        row |= {"verdict": "does not hold", "note": f"contradicted by {words}"}
    elif not missing:
        smaller = size is not None and least.high < size
        row |= {"verdict": "smaller"} if smaller else {"note": "more seeds"}
    return row


def _seeds(means: Sequence[Mean], values: Values) -> list[int]:
    """The seeds that all cells of some means have finished."""
    return sorted(set.intersection(*(set(values[key].index) for _, keys in means for key in keys)))


def _estimate(
    weights: Mapping[CellKey, float], values: Values, seeds: list[int]
) -> statistics.Estimate:
    """Cells of one method and buffer are added by seed, as they share weights and order of images.

    Those of different methods, buffers or benchmarks are independent.
    """
    parts: dict[tuple[Any, ...], pd.Series] = {}
    for key, weight in weights.items():
        place = key.benchmark, key.source, key.method, key.buffer
        parts[place] = parts.get(place, 0.0) + weight * values[key][seeds]
    return statistics.total(list(parts.values()), "least")


def _printed_value(family: Sequence[Mean], printed: Mapping[CellKey, float]) -> float | None:
    """The least of some means on the paper's numbers; None where it does not print all of them."""
    try:
        sums = [sum(w * printed[key] for key, w in weights.items()) for _, weights in family]
    except KeyError:
        return None
    return round(min(sums), 9) if sums else None
