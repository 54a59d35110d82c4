"""How often verdicts on the paper's claims and numbers are right, on simulated accuracies.

    python -m benchmarks.verdicts

prints two tables as Markdown; docs/results.md has the second, and says what the first shows. The
accuracies of all cells are normal and independent, with a standard deviation over seeds of 1;
nothing is trained.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from benchmarks import command
from twf.results import show, statistics
from twf.results.paper import evaluation
from twf.results.paper.claims import CLAIMS
from twf.results.paper.comparison import MARGIN
from twf.results.printed import printed_keys
from twf.results.show import Texts
from twf.results.statistics import Estimate

SEEDS = (3, 5, 10)
NAMES = ("first-class-il", "gain-class-il")
DEVIATIONS = (0.25, 0.5, 1.0, 2.0)  # of the runs of a cell, in points


def claims(samples: int) -> list[Texts]:
    """How often some claims are said to hold, and not to, in per cent, by seeds and true effect.

    `0` is the family-wise error: all cells alike. `d` is of a claim that holds, each mean being d,
    `-d` of one that does not, as one of the means is -d and the others are d. Where half of them
    (the first) are -2 and the others 0: how many of that half are named as contradicting the claim,
    and how often another is, which is the family-wise error.
    """
    families = {claim.name: claim.family(printed_keys()) for claim in CLAIMS}
    rows = []
    for name in NAMES:
        means, keys = evaluation.weights(families[name])
        for seeds in SEEDS:
            chance = evaluation.by_chance(means, keys, seeds, samples)
            low, high = statistics.interval_of_minimum(chance, planned=len(means))
            row = {
                "Claim": show.Markdown(f"`{name}`"),
                "Means": str(len(means)),
                "Seeds": str(seeds),
                "0: holds": _share(low > 0),
                "0: does not": _share(high < 0),
            }
            row |= {f"{d}: holds": _share(low + d > 0) for d in evaluation.EFFECTS}
            for d in evaluation.EFFECTS:
                moved = _shifted(chance, np.where(np.arange(len(means)) == 0, -d, d))
                _, high = statistics.interval_of_minimum(moved, planned=len(means))
                row[f"-{d}: does not"] = _share(high < 0)
            half = np.arange(len(means)) < len(means) / 2
            named = statistics.below_zero(_shifted(chance, -2.0 * half), planned=len(means))
            row["half -2: named"] = _share(named[:, half])
            row["others 0: named"] = _share(named[:, ~half].any(-1))
            rows.append(row)
    return rows


def numbers() -> list[Texts]:
    """How often `equivalent` is found in per cent, our true mean being the paper's number."""
    rows = []
    for deviation in DEVIATIONS:
        row = {"Standard deviation": f"{deviation:g}"}
        for seeds in SEEDS:
            chance = statistics.chance_within(seeds, deviation, MARGIN)
            row[f"{seeds} seeds"] = f"{100 * chance:.0f}"
        rows.append(row | {"Seeds for 80 %": str(statistics.seeds_needed(deviation, MARGIN))})
    return rows


def _shifted(chance: Estimate, by: np.typing.NDArray[np.floating]) -> Estimate:
    """The estimates where the true means are these."""
    return chance._replace(mean=chance.mean + by)


def _share(found: np.typing.NDArray[np.bool_] | np.bool_) -> str:
    return f"{100 * np.mean(found):.1f}"


def main(
    samples: Annotated[int, typer.Option(min=100, help="Of each kind.")] = 50_000,
) -> None:
    """Simulate how often verdicts are right; prints two tables in Markdown."""
    print(show.markdown_table(claims(samples)), end="\n\n")
    print(show.markdown_table(numbers()))


if __name__ == "__main__":
    command(main)
