"""The paper's claims as tests: on the paper's own numbers, and on a study's.

A claim says that each mean of a family is positive: of a difference between cells, or of the mean
of some. Its value is the least of these means. On the paper's numbers, which have no seeds, a claim
holds where the value is positive. On ours it is evaluated on the seeds that all its cells have
finished, paired by seed, with the 95 % interval of `statistics.least_interval`:

    holds            the interval lies above 0, and no difference of the family is missing
    does not hold    it lies below 0, and (where means are of several) none of theirs is missing;
                     `contradicted` are the means below 0, by `statistics.below_zero`
    undecided        anything else: also with a single seed, which has no interval, and where a
                     hyperparameter that the paper does not print has not been searched for
    not run          no difference has a finished seed in all its cells

So with probability of at most 2.5 % a claim is said to hold that does not, and with at most 2.5 %
not to hold though it does, or to be contradicted by a mean that is not below 0, whatever the number
of its differences: the family is that of one claim, not of all claims together. The rival that is
strongest is not chosen: the least mean is over all.

The probability that a claim holds is the share of bootstrap samples of the seeds in which the
value is positive. Few seeds make it too sure of itself (see `statistics`), so it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, compress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from twf.files import claims_file
from twf.results import output, search, statistics
from twf.results.output import Row, Texts, number
from twf.results.paper.claims import CLAIMS, Claim
from twf.results.paper.differences import Difference, Key, ProbeKey, in_words
from twf.results.published import CellKey, planned, published
from twf.results.record import PROBED
from twf.results.runs import Runs

Values = Mapping[Key, Mapping[int, float]]  # by cell and seed, empty where none is

SAMPLES = 1000  # of a simulation of a claim's power
EFFECTS = (1, 2)  # true differences that it is given for, in standard deviations of a cell's runs

SCHEMA = pa.schema(
    [
        ("claim", pa.string()),
        ("statement", pa.string()),
        ("unit", pa.string()),  # of the values: FAA or k-NN in points of per cent, CKA from 0 to 1
        ("published_value", pa.float64()),  # of the paper's numbers; null where it prints none
        ("published_verdict", pa.string()),  # holds, does not hold, or no numbers
        ("value", pa.float64()),  # the least mean of those run; null where nothing can be paired
        ("low", pa.float64()),  # by statistics.least_interval: decides the verdict
        ("high", pa.float64()),
        ("probability", pa.float64()),  # that the value is positive; null with fewer than 2 seeds
        # How often it would be said to hold, were each mean 1 or 2 standard deviations
        *((f"power_{effect}", pa.float64()) for effect in EFFECTS),
        ("n_means", pa.int64()),  # of the family
        ("n_differences", pa.int64()),  # of which they are
        ("n_differences_run", pa.int64()),  # with a finished seed in all their cells
        ("n_cells", pa.int64()),  # that the differences are between
        ("n_cells_run", pa.int64()),
        ("n_seeds", pa.int64()),  # that all cells of the differences run have in common
        ("verdict", pa.string()),
        ("contradicted", pa.string()),  # the means below 0 of one that does not hold; else null
        ("missing", pa.string()),  # for a verdict; null where there is nothing
        ("weakest", pa.string()),  # the least difference
        ("weakest_difference", pa.float64()),
    ]
)


def weights(family: Sequence[Sequence[Difference]]) -> tuple[NDArray[np.float64], list[Key]]:
    """The means of a family as weights of its keys, `[mean, key]`, and these keys, each once."""
    place: dict[Key, int] = {}
    for difference in chain(*family):
        for key in chain(*difference):
            place.setdefault(key, len(place))
    found = np.zeros((len(family), len(place)))
    for row, group in zip(found, family, strict=True):
        for difference in group:
            for sign, side in zip((1, -1), difference, strict=True):
                for key in side:
                    row[place[key]] += sign / len(group)
    return found, list(place)


def evaluate(claim: Claim, values: Values, untuned: Mapping[CellKey, str]) -> Row:
    """A claim on measured values: the columns of `SCHEMA` without the published ones.

    `untuned` are hyperparameters that nobody has searched for, by cell.
    """
    family = claim.family(values.keys())
    run = [[d for d in group if _seeds([d], values)] for group in family]
    differences, done = list(chain(*family)), list(chain(*run))
    row: Row = {
        "n_means": len(family),
        "n_differences": len(differences),
        "n_differences_run": len(done),
        "n_cells": len(_cells(differences)),
        "n_cells_run": len(_cells(done)),
        "n_seeds": 0,
    }
    if not done:
        needed = "all runs" if family else "no such cell in this study"
        return row | {"verdict": "not run", "missing": needed}
    seeds = sorted(_seeds(done, values))
    names = {untuned[cell] for cell in _cells(done) if cell in untuned}
    missing = [
        *([f"{len(differences) - len(done)} differences"] if len(done) < len(differences) else []),
        *(["a second seed in all cells"] if len(seeds) < 2 else []),
        *(f"a search for {name}" for name in sorted(names)),
    ]
    row |= {"verdict": "undecided", "missing": "; ".join(missing) or None, "n_seeds": len(seeds)}
    if not seeds:
        return row
    means, keys = weights([group for group in run if group])
    measured = np.array([[values[key][seed] for seed in seeds] for key in keys])  # [key, seed]
    by_seed = np.round(means @ measured, 9)  # [mean, seed]: cells that are alike differ by 0
    least = weights([[d] for d in done])[0] @ measured.mean(1)  # of the same keys
    row |= {
        "value": float(by_seed.mean(1).min()),
        "weakest": str(done[least.argmin()]),
        "weakest_difference": float(least.min()),
    }
    if len(seeds) < 2:
        return row
    low, high = statistics.least_interval(by_seed, planned=len(family))
    whole = all(len(group) == len(ran) for group, ran in zip(family, run, strict=True) if ran)
    chance, _ = statistics.least_interval(by_chance(means, len(seeds), SAMPLES), len(means))
    row |= {"low": float(low), "high": float(high)}
    row |= {f"power_{effect}": float(np.mean(chance + effect > 0)) for effect in EFFECTS}
    sampled = by_seed[:, statistics.resamples(len(seeds))].mean(-1).min(0)
    row["probability"] = float(np.mean((sampled > 0) + (sampled == 0) / 2))  # ties half
    if not names and low > 0 and len(done) == len(differences):
        row["verdict"] = "holds"
    elif not names and high < 0 and whole:
        below = statistics.below_zero(by_seed, planned=len(family))
        found = compress((group for group in run if group), below)
        row |= {"verdict": "does not hold", "missing": None}
        row["contradicted"] = "; ".join(map(in_words, found))
    elif not missing:
        row["missing"] = "more seeds"
    return row


def by_chance(means: NDArray[np.float64], seeds: int, samples: int) -> NDArray[np.float64]:
    """A family's means where cells are alike but for chance, `[sample, mean, seed]`.

    `means` are its weights `[mean, key]`. The values of cells are normal and independent with a
    standard deviation of 1.
    """
    noise = np.random.default_rng(0).standard_normal((samples, means.shape[1], seeds))
    return means @ noise


def _seeds(differences: Sequence[Difference], values: Values) -> set[int]:
    """The seeds that all cells of some differences have."""
    return set.intersection(*(set(values[key]) for d in differences for key in chain(*d)))


def _cells(differences: Sequence[Difference]) -> set[CellKey]:
    keys = (key for difference in differences for key in chain(*difference))
    return {key if isinstance(key, CellKey) else key.cell for key in keys}


def on_published(claim: Claim) -> Row:
    """A claim on the paper's own numbers: the published columns of `SCHEMA`."""
    faa: dict[Key, float] = {cell.key: cell.faa for cell in published()}
    family = claim.family(faa.keys())
    if not family:
        return {"published_verdict": "no numbers"}
    means, keys = weights(family)
    value = float((means @ [faa[key] for key in keys]).min())
    verdict = "holds" if value > 0 else "does not hold"
    return {"published_value": value, "published_verdict": verdict}


def measured(runs: Runs) -> Values:
    """The FAA of each cell of a study by seed, of its finished runs, and what was probed of it."""
    found: dict[Key, Mapping[int, float]] = {}
    for cell, of_cell in planned(runs.plan).items():
        found[cell] = runs.faa(of_cell, cell.protocol)
        probed = {seed: run for seed, run in of_cell.items() if runs.plan.runs[run].probes}
        if probed:
            found |= _probed(runs, cell, probed)
    return found


def _probed(runs: Runs, cell: CellKey, of_cell: Mapping[int, str]) -> Values:
    """What was probed of a cell's runs, by layer, tasks and seed."""
    tasks = runs.plan.runs[next(iter(of_cell.values()))].tasks
    rows = {seed: outcome.row for seed, outcome in runs.finished(of_cell).items()}
    return {
        ProbeKey(cell, quantity, layer, done): {
            seed: row[quantity][done][i] for seed, row in rows.items()
        }
        for quantity, layers in PROBED.items()
        for i, layer in enumerate(layers)
        for done in range(tasks + 1)
    }


def evaluate_all(runs: Runs) -> list[Row]:
    """A row of `SCHEMA` for each of `CLAIMS`."""
    values, untuned = measured(runs), search.untuned(runs)
    return [
        output.complete(
            {"claim": claim.name, "statement": claim.statement, "unit": claim.unit}
            | on_published(claim)
            | evaluate(claim, values, untuned),
            SCHEMA,
        )
        for claim in CLAIMS
    ]


def write(runs: Runs) -> None:
    """Write the claims from the study's collected records, as `files.COMPARISON_FORMATS`."""
    long = evaluate_all(runs)
    file = partial(claims_file, runs.plan.study)
    output.write_long(long, SCHEMA, file)
    values = {"study": runs.plan.study, "entries": [entry(row) for row in long]}
    output.write_text("claims.md.j2", values, file("md"))


def entry(row: Row) -> Texts:
    """A row as text, by the heading of each column."""
    printed = number(row["published_value"], "+")
    power = [row[f"power_{effect}"] for effect in EFFECTS]
    return {
        "Claim": row["statement"],
        "Paper's numbers": f"{row['published_verdict']}, {printed}".removesuffix(", —"),
        "Ours": number(row["value"], "+"),
        "95 % interval": output.interval(row["low"], row["high"], "+"),
        "Unit": row["unit"],
        "Cells": f"{row['n_cells_run']}/{row['n_cells']}",
        "Differences": f"{row['n_differences_run']}/{row['n_differences']}",
        "Seeds": str(row["n_seeds"]),
        "Verdict": row["verdict"],
        "Contradicted in": row["contradicted"] or "—",
        "Missing": row["missing"] or "—",
        "Power, 1 and 2 SD": "—"
        if power[0] is None
        else " and ".join(f"{100 * p:.0f} %" for p in power),
        "Probability": number(row["probability"]),
        "Weakest": row["weakest"] or "—",
    }
