"""The paper's claims as tests, by `evaluate`: on the paper's own numbers, and on a study's.

A claim says that each mean of a family is positive: of a difference between cells, or of the mean
of some. Its value is the least of these means. On the paper's numbers, which have no seeds, a claim
holds where the value is positive. On ours it is evaluated on the seeds that all cells of the
differences that have run have finished, each mean with the error of `contrasts`, by the 95 %
interval of `statistics.interval_of_minimum`: below, the least lower end of a mean; above, the least
upper end at a level divided by how many there are.

    holds            the interval lies above 0, and none of the family is missing or untuned; a
                     difference with a cell of which a run diverged is missing
    control passes   so it does, and for the claim's control too: something else explains it;
                     without all of the control, `undecided`
    does not hold    it lies below 0, and (where means are of several) none of theirs is missing;
                     `contradicted` are the means below 0, by `statistics.below_zero`
    smaller          undecided, but it lies below the paper's value of these differences
    undecided        anything else: also with a single seed, which has no interval, and where a
                     hyperparameter that the paper does not print has not been searched for
                     (`search.untuned`)
    not run          no difference has a finished seed in all its cells

So with probability of at most 2.5 % a claim is said to hold that does not, and with at most 2.5 %
not to hold though it does, or to be contradicted by a mean that is not below 0, whatever the number
of its differences: the family is that of one claim, not of all claims together. The rival that is
strongest is not chosen: the least mean is over all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from twf.files import claims_file
from twf.results import contrasts, search, show, statistics
from twf.results.contrasts import UNMARKED, Marks, Values
from twf.results.frame import Results, column
from twf.results.paper.claims import CLAIMS, Claim, Difference, in_words
from twf.results.printed import PLACE, CellKey, key_at, printed_keys
from twf.results.record import PROBED
from twf.results.show import TextRow, number
from twf.results.statistics import Estimate
from twf.study.params import PROTOCOLS

SAMPLES = 1000  # of a simulation of a claim's power
EFFECTS = (1, 2)  # true differences that it is given for, in standard deviations of a cell's runs

SCHEMA = pa.schema(
    [
        ("claim", pa.string()),
        ("group", pa.string()),  # performance, mechanism or incidental
        ("statement", pa.string()),
        ("unit", pa.string()),  # of the values: FAA or k-NN in percentage points, CKA from 0 to 1
        ("printed_value", pa.float64()),  # of the paper's numbers; null where it prints none
        ("printed_verdict", pa.string()),  # holds, does not hold, or no numbers
        ("printed_value_run", pa.float64()),  # of the study's differences alone, where undecided
        ("value", pa.float64()),  # the least mean of those run; null where no seed is common
        ("low", pa.float64()),  # by statistics.interval_of_minimum: decides the verdict
        ("high", pa.float64()),
        ("freedom", pa.float64()),  # degrees of freedom of the mean that the lower end is of
        # How often it would be said to hold, were each mean 1 or 2 standard deviations
        *((f"power_{effect}", pa.float64()) for effect in EFFECTS),
        ("n_means", pa.int64()),  # of the family
        ("n_differences", pa.int64()),  # of which they are
        ("n_differences_run", pa.int64()),  # with a finished seed in all their cells
        ("n_cells", pa.int64()),  # that the differences are between
        ("n_cells_run", pa.int64()),
        ("n_seeds", pa.int64()),  # that all cells of the differences run have in common
        ("precisions", pa.list_(pa.string())),  # of their runs of these: several where they differ
        ("verdict", pa.string()),
        ("contradicted", pa.string()),  # the means below 0 of one that does not hold; else null
        ("missing", pa.string()),  # for a verdict; null where there is nothing
        ("weakest", pa.string()),  # the least difference
    ]
)
COMPARED = show.Compared(
    claims_file,
    SCHEMA,
    "Each claim says that some differences between cells are positive, or means of them; “ours” "
    "is the least of these, with its 95 % interval. A claim holds where the interval lies above 0 "
    "and nothing is missing, and does not hold where it lies below 0: for one claim, each of these "
    "is wrong in at most 2.5 % of cases. Contradicted in: the differences, or means, found to be "
    "below 0 by Holm's procedure; in at most 2.5 % of cases, one of those named is not. Power: how "
    "often it would be found to hold with these seeds, if each mean were 1 or 2 standard "
    "deviations of a cell's runs. FAA and k-NN accuracy are in percentage points, CKA is from 0 "
    f"to 1. {show.MIXED}: of runs that differ in precision.",
)


def weights(family: Sequence[Sequence[Difference]]) -> tuple[NDArray[np.float64], list[CellKey]]:
    """The means of a family as weights of its keys, `[mean, key]`, and these keys, each once."""
    place: dict[CellKey, int] = {}
    for key in _keys(chain(*family)):
        place.setdefault(key, len(place))
    means = np.zeros((len(family), len(place)))
    for row, group in zip(means, family, strict=True):
        for difference in group:
            for sign, side in zip((1, -1), difference, strict=True):
                for key in side:
                    row[place[key]] += sign / len(group)
    return means, list(place)


def evaluate(
    claim: Claim, values: Values, untuned: Mapping[CellKey, str], marks: Marks = UNMARKED
) -> dict[str, Any]:
    """A claim on measured values: the columns of `SCHEMA` without the printed ones.

    `untuned` are hyperparameters that nobody has searched for, by cell.
    """
    family = claim.family(values.keys())
    able = [[d for d in group if not marks.diverged(_keys([d]))] for group in family]
    run = [[d for d in group if _seeds([d], values)] for group in able]
    differences, done = list(chain(*family)), list(chain(*run))
    seeds = _seeds(done, values) if done else []
    row: dict[str, Any] = {
        "n_means": len(family),
        "n_differences": len(differences),
        "n_differences_run": len(done),
        "n_cells": len(_cells(differences)),
        "n_cells_run": len(_cells(done)),
        "n_seeds": len(seeds),
        "precisions": marks.precisions(_keys(done), seeds),
    }
    diverged = marks.diverged(_keys(differences))
    of_diverged = [f"runs that diverged: {diverged}"] if diverged else []
    if not done and diverged:
        return row | {"verdict": "undecided", "missing": of_diverged[0]}
    if not done:
        needed = "all runs" if family else "no such cell in this study"
        return row | {"verdict": "not run", "missing": needed}
    names = {untuned[cell] for cell in _cells(done) if cell in untuned}
    missing = [
        *([f"{len(differences) - len(done)} differences"] if len(done) < len(differences) else []),
        *(["a second seed in all cells"] if len(seeds) < 2 else []),
        *(f"a search for {name}" for name in sorted(names)),
        *of_diverged,
    ]
    row |= {"verdict": "undecided", "missing": "; ".join(missing) or None}
    if not seeds:
        return row
    estimate = _estimates([group for group in run if group], values)
    single = _estimates([[difference] for difference in done], values).mean
    row |= {"value": float(estimate.mean.min()), "weakest": str(done[single.argmin()])}
    if len(seeds) < 2:
        return row
    low, high = statistics.interval_of_minimum(estimate, planned=len(family))
    row |= {"low": float(low), "high": float(high)}
    row["freedom"] = float(estimate.freedom[estimate.ends()[0].argmin()])
    by_luck = by_chance(*weights([group for group in run if group]), len(seeds), SAMPLES)
    chance, _ = statistics.interval_of_minimum(by_luck, planned=len(family))
    row |= {f"power_{effect}": float(np.mean(chance + effect > 0)) for effect in EFFECTS}
    whole = all(len(group) == len(ran) for group, ran in zip(family, run, strict=True) if ran)
    if not names and low > 0 and len(done) == len(differences):
        row["verdict"], row["missing"] = _beside_control(claim, values, marks)
    elif not names and high < 0 and whole:
        below = statistics.below_zero(estimate, planned=len(family))
        against = compress((group for group in run if group), below)
        row |= {"verdict": "does not hold", "missing": None}
        row["contradicted"] = "; ".join(map(in_words, against))
    elif not missing:
        row["printed_value_run"] = size = _printed_value(family, printed_keys())
        smaller = size is not None and high < size
        row |= {"verdict": "smaller"} if smaller else {"missing": "more seeds"}
    return row


def _beside_control(claim: Claim, values: Values, marks: Marks) -> tuple[str, str | None]:
    """The verdict on a claim whose own interval lies above 0, and what is missing of its control.

    The claim holds where the study has no such cell as the control's.
    """
    family = claim.family(values.keys(), control=True)
    if not family:
        return "holds", "its control: no such cell in this study" if claim.control else None
    differences = list(chain(*family))
    if marks.diverged(_keys(differences)) or len(_seeds(differences, values)) < 2:
        return "undecided", "two seeds of all of its control, none of which diverged"
    low, _ = statistics.interval_of_minimum(_estimates(family, values), len(family))
    return ("control passes" if low > 0 else "holds"), None


def _estimates(family: Sequence[Sequence[Difference]], values: Values) -> Estimate:
    """The means of a family `[mean]`, over the seeds that all its cells have."""
    means, keys = weights(family)
    measured = contrasts.stacked(values, keys, contrasts.shared(values, keys))
    return contrasts.estimates(means, keys, measured)


def _printed_value(
    family: Sequence[Sequence[Difference]], printed: Mapping[CellKey, float]
) -> float | None:
    """The least of some means on the paper's numbers; None where it does not print all of them."""
    means, keys = weights(family)
    if not all(key in printed for key in keys):
        return None
    return float((means @ [printed[key] for key in keys]).min())


def by_chance(
    means: NDArray[np.float64],
    keys: Sequence[CellKey],
    seeds: int,
    samples: int,
) -> Estimate:
    """A family's means `[sample, mean]` where cells are alike but for chance.

    `means` are its weights `[mean, key]`. The values of cells are normal and independent with a
    standard deviation of 1.
    """
    noise = np.random.default_rng(0).standard_normal((samples, means.shape[1], seeds))
    return contrasts.estimates(means, keys, noise)


def _keys(differences: Iterable[Difference]) -> Iterator[CellKey]:
    return chain.from_iterable(chain(*difference) for difference in differences)


def _seeds(differences: Sequence[Difference], values: Values) -> list[int]:
    """The seeds that all cells of some differences have."""
    return contrasts.shared(values, _keys(differences))


def _cells(differences: Sequence[Difference]) -> set[CellKey]:
    return {key_at(key[: len(PLACE)]) for key in _keys(differences)}


def on_printed(claim: Claim, printed: Mapping[CellKey, float]) -> dict[str, Any]:
    """A claim on the paper's own numbers: the printed columns of `SCHEMA`."""
    family = claim.family(printed.keys())
    value = _printed_value(family, printed) if family else None
    if value is None:
        return {"printed_verdict": "no numbers"}
    return {"printed_value": value, "printed_verdict": "holds" if value > 0 else "does not hold"}


def values_of(results: Results) -> Values:
    """The FAA of each cell of a study by seed, of its finished runs, and what was probed of it."""
    values: dict[CellKey, Mapping[int, float]] = {**contrasts.of_cells(results)}
    for place, members in results.by_place.groupby(PLACE, sort=False):
        cell = key_at(place)
        runs = dict(zip(members["seed"], members["run"], strict=True))
        probed = {seed: run for seed, run in runs.items() if results.plan.runs[run].probes}
        if probed:
            values |= _probed(results, cell, probed)
    return values


def _probed(results: Results, cell: CellKey, of_cell: Mapping[int, str]) -> Values:
    """What was probed of a cell's runs, by layer, tasks and seed."""
    run = results.plan.runs[next(iter(of_cell.values()))]
    finished = results.finished
    rows = {seed: finished.loc[run] for seed, run in of_cell.items() if run in finished.index}
    learned = {  # on a task right after learning it, which a record has under both protocols
        cell._replace(protocol=protocol, quantity="learned", layer="network", tasks=done + 1): {
            seed: row[column("accuracy", protocol)][done][done] for seed, row in rows.items()
        }
        for protocol in PROTOCOLS
        for done in range(run.tasks)
        if run.phases == run.tasks  # Joint learns them at once
    }
    return learned | {
        cell._replace(quantity=quantity, layer=layer, tasks=done): {
            seed: row[quantity][done][i] for seed, row in rows.items() if len(row[quantity])
        }
        for quantity, layers in PROBED.items()
        for i, layer in enumerate(layers)
        for done in range(run.phases + 1)
    }


def evaluate_all(results: Results) -> pd.DataFrame:
    """A row of `SCHEMA` for each of `CLAIMS`."""
    values, untuned, printed = values_of(results), search.untuned(results), printed_keys()
    marks = Marks.of_results(results)
    rows = [
        {name: getattr(claim, name) for name in ("group", "statement", "unit")}
        | {"claim": claim.name}
        | on_printed(claim, printed)
        | evaluate(claim, values, untuned, marks)
        for claim in CLAIMS
    ]
    return pd.DataFrame(rows, columns=SCHEMA.names)


def write(results: Results) -> None:
    """Write the claims from the study's collected records, as `files.COMPARISON_FORMATS`."""
    frame = evaluate_all(results)
    COMPARED.write(results.plan, frame, [show.Section("", text_rows(frame))])


def text_rows(claims: pd.DataFrame) -> list[TextRow]:
    """The rows as text, by the heading of each column."""
    return [_text_row(row) for row in show.rows(claims)]


def _text_row(row: Any) -> TextRow:
    printed = number(row["printed_value"], "+")
    power = [row[f"power_{effect}"] for effect in EFFECTS]
    return {
        "Claim": row["statement"],
        "Verdict": row["verdict"],
        "Ours": number(row["value"], "+") + show.mixed(row["precisions"]),
        "95 % interval": _interval(row),
        "Unit": row["unit"],
        "Paper's numbers": f"{row['printed_verdict']}, {printed}".removesuffix(", —"),
        "Cells": f"{row['n_cells_run']}/{row['n_cells']}",
        "Differences": f"{row['n_differences_run']}/{row['n_differences']}",
        "Seeds": str(row["n_seeds"]),
        "Contradicted in": _or_dash(row["contradicted"]),
        "Missing": _or_dash(row["missing"]),
        "Power, 1 and 2 SD": "—"
        if pd.isna(power[0])
        else " and ".join(f"{100 * p:.0f} %" for p in power),
        "Weakest": _or_dash(row["weakest"]),
    }


def _interval(row: Any) -> str:
    ends = show.interval(row["low"], row["high"], "+")
    return ends if pd.isna(row["freedom"]) else f"{ends} ({show.freedom(row['freedom'])})"


def _or_dash(text: Any) -> str:
    return text if isinstance(text, str) and text else "—"
