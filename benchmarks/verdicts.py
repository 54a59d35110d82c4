"""How often verdicts on the paper's claims and numbers are right, on simulated accuracies.

    python -m benchmarks.verdicts

prints three tables as Markdown; docs/results.md has the second, and says what the last shows.
Accuracies are normal and independent, in the first two with a standard deviation over seeds of 1,
in the third with those of the records in git too; nothing is trained.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from benchmarks import command
from twf import files
from twf.results import contrasts, show, statistics
from twf.results.frame import Results, key_of
from twf.results.paper import claim_tests
from twf.results.paper.claims import CLAIMS
from twf.results.paper.comparison import MARGIN
from twf.results.printed import CellKey, printed_keys
from twf.results.show import TextRow
from twf.results.statistics import Estimate
from twf.study import expand, reading

SEEDS = (3, 5, 10)
NAMES = ("first-class-il", "gain-class-il")
DEVIATIONS = (0.25, 0.5, 1.0, 2.0)  # of the runs of a cell, in points


def claims(samples: int) -> list[TextRow]:
    """How often some claims are said to hold, and not to, in per cent, by seeds and true effect.

    `0` is the family-wise error: all cells alike. `d` is of a claim that holds, each mean being d,
    `-d` of one that does not, as one of the means is -d and the others are d. Where half of them
    (the first) are -2 and the others 0: how many of that half are named as contradicting the claim,
    and how often another is, which is the family-wise error.
    """
    families = {claim.name: claim.family(printed_keys()) for claim in CLAIMS}
    rows = []
    for name in NAMES:
        means, keys = claim_tests.weights(families[name])
        for seeds in SEEDS:
            chance = claim_tests.by_chance(means, keys, seeds, samples)
            low, high = statistics.interval_of_minimum(chance, planned=len(means))
            row = {
                "Claim": show.Markdown(f"`{name}`"),
                "Means": str(len(means)),
                "Seeds": str(seeds),
                "0: holds": _share(low > 0),
                "0: does not": _share(high < 0),
            }
            row |= {f"{d}: holds": _share(low + d > 0) for d in claim_tests.EFFECTS}
            for d in claim_tests.EFFECTS:
                moved = _shifted(chance, np.where(np.arange(len(means)) == 0, -d, d))
                _, high = statistics.interval_of_minimum(moved, planned=len(means))
                row[f"-{d}: does not"] = _share(high < 0)
            half = np.arange(len(means)) < len(means) / 2
            named = statistics.below_zero(_shifted(chance, -2.0 * half), planned=len(means))
            row["half -2: named"] = _share(named[:, half])
            row["others 0: named"] = _share(named[:, ~half].any(-1))
            rows.append(row)
    return rows


def numbers() -> list[TextRow]:
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


def intervals(samples: int) -> list[TextRow]:
    """How often 95 % intervals of differences hold the true one, in per cent, by seeds.

    Of variants of one method, each minus the first, by seed and by the two-way layout; of two
    methods, by Welch. Their standard deviations are 1, or those of the study `overnight`: for
    variants, of what a two-way layout leaves. Where differences differ, the least and the most.
    """
    results = records("overnight")
    values = contrasts.of_cells(results)
    variants, methods = {"4 alike": np.ones(4)}, {"alike": np.ones(2)}
    for table in results.plan.tables.values():
        found: dict[str, dict[str, CellKey]] = {}
        for cell in table.cells:
            key = key_of(table.benchmark, table.paper_source, cell)
            if cell.protocol == "class-il" and cell.buffer and len(values[key]) == SEEDS[0]:
                found.setdefault(f"{cell.method}, {cell.buffer}", {})[str(cell.variant)] = key
        measured = {
            name: contrasts.stacked(values, list(keys.values()), range(SEEDS[0]))
            for name, keys in found.items()
        }
        if table.variants:
            for name, of in measured.items():
                if len(of) > 2:
                    left = statistics.residuals(of).std(-1, ddof=1)
                    variants[f"{len(of)} of {table.name}, {name}"] = left
        elif "main" in table.name:
            spreads = sorted(float(of.std(ddof=1)) for of in measured.values())
            methods[f"{table.name}, least and most"] = np.array([spreads[0], spreads[-1]])
    rows = []
    generator = np.random.default_rng(0)
    for kind, cases in (("variants", variants), ("methods", methods)):
        for name, deviations in cases.items():
            row = {"Of": kind, "Standard deviations": name}
            row |= {"Least": f"{deviations.min():.2f}", "Most": f"{deviations.max():.2f}"}
            for seeds in SEEDS:
                noise = generator.standard_normal((samples, len(deviations), seeds))
                shown = _covered(noise * deviations[:, None], layout=kind == "variants")
                row |= {f"{rule}, {seeds} seeds": text for rule, text in shown.items()}
            rows.append(row)
    return rows


def _covered(values: np.typing.NDArray[np.float64], layout: bool) -> dict[str, str]:
    """How often intervals of differences `[sample, variant, seed]` from the first hold 0."""
    others = range(1, values.shape[1])
    first = values[:, 0]
    found: dict[str, list[Estimate]] = {"the rule": [], "pooled": []}
    for other in others:
        weights = np.zeros(values.shape[1])
        weights[0], weights[other] = -1.0, 1.0
        by_seed = statistics.student(values[:, other] - first)
        welch = [statistics.student(values[:, other]), statistics.student(-first)]
        found["the rule"].append(by_seed if layout else statistics.total(welch))
        if layout:
            found["pooled"].append(statistics.two_way(values, weights))
    return {rule: _least_and_most(estimates) for rule, estimates in found.items()}


def _least_and_most(estimates: list[Estimate]) -> str:
    """How often the intervals hold 0; a dash where there are none."""
    ends = [estimate.ends() for estimate in estimates]
    shares = [100 * float(np.mean((low <= 0) & (high >= 0))) for low, high in ends]
    least_and_most = (f"{share:.1f}" for share in (min(shares), max(shares))) if shares else "—"
    return " to ".join(dict.fromkeys(least_and_most))


def records(study: str) -> Results:
    """A study with its records in git."""
    plan = expand(reading.load(files.PARAMS), study)
    return Results.of_records(plan, plan.runs)


def _share(found: np.typing.NDArray[np.bool_] | np.bool_) -> str:
    return f"{100 * np.mean(found):.1f}"


def main(
    samples: Annotated[int, typer.Option(min=100, help="Of each kind.")] = 50_000,
) -> None:
    """Simulate how often verdicts are right; prints three tables in Markdown."""
    print(show.markdown_table(claims(samples)), end="\n\n")
    print(show.markdown_table(numbers()), end="\n\n")
    print(show.markdown_table(intervals(samples)))


if __name__ == "__main__":
    command(main)
