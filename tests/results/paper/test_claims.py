"""The paper's claims: what its own numbers say, and what synthetic ones do."""

from typing import Any

import pandas as pd
import pytest
from support import PROJECT

from twf import study
from twf.results import estimates
from twf.results.frame import Results
from twf.results.paper import claims
from twf.results.paper.claims import Difference, Keys
from twf.results.printed import CellKey, printed_keys
from twf.study import reading

PARAMS = reading.load(PROJECT / "params.yaml")
CLAIMS = claims.load()
MAIN = ("er", "co2l", "icarl", "derpp", "er-ace", "twf")  # with a buffer, in Tables 1-3
BY_NAME = {claim.name: claim for claim in CLAIMS}
PAPERS = printed_keys()

# Value on the paper's numbers, and how many differences it is of, worked out from its tables.
PRINTED = {
    "first-class-il": (0.83, 30),  # Split CIFAR-100, 500: 56.83 over iCaRL's 56.00
    "first-task-il": (-0.17, 30),  # the same: 89.82 under iCaRL's 89.99
    "gain-class-il": (4.81, 6),  # as the paper says
    "gain-task-il": (2.77, 6),  # as the paper says
    "gain-over-each-class-il": (4.81, 30),  # DER++ is second in the mean
    "gain-over-each-task-il": (2.62, 30),  # ER is, and not ER-ACE
    # Split CIFAR-10, Task-IL: 97.49 - 96.41 with 500, 98.35 - 97.60 with 5120
    "gain-small-buffer": (0.33, 4),
    "second-class-il": (1.70, 24),  # DER++ over ER-ACE
    "second-task-il": (-0.15, 24),  # ER-ACE under ER
    "buffer-above-regularization": (0.37, 72),  # Split CUB-200: CO2L 8.96, LwF 8.59
    "oewc-best-without-buffer": (-0.39, 6),  # Split CUB-200: 8.20, LwF 8.59
    "oewc-below-finetune": (0.36, 2),  # 8.20 and 8.56
    "icarl-second": (0.05, 16),  # 2000: 58.10 over DER++'s 58.05
    "icarl-below-derpp-class-il": (1.69, 4),  # Split CIFAR-10, 500: 76.73 and 78.42
    "icarl-below-derpp-task-il": (-3.0, 4),  # the same: 97.25 and 94.25
    # Split CIFAR-100, Task-IL: ER from 87.59 to 85.98, ER-ACE from 88.46 to 87.21
    "er-ace-small-buffer": (0.36, 6),
    "er-ace-below-derpp-class-il": (0.32, 3),  # Split CIFAR-100: 57.73 and 58.05
    "er-ace-below-derpp-task-il": (-1.83, 3),  # the same: 88.46 and 86.63
    # Split CIFAR-100, 500: CL alone 44.01, FP and AUX 50.88
    "cl-most-influential": (-6.87, 12),
    "cl-helps": (5.95, 6),  # Split CIFAR-100, 500: 56.83 over 50.88
    "fp-helps": (0.54, 6),  # Split CUB-200, 1000: 67.83 over 67.29
    "aux-helps": (0.02, 15),  # Split CIFAR-10, 5120: 89.55 over 89.53
    "fp-without-buffer": (29.79, 3),  # Split CUB-200: 37.99 over 8.20
    # from SVHN, Task-IL, 500: 80.89 over iCaRL's 78.89
    "first-from-dissimilar-source": (2.0, 8),
}
FIGURES_ALONE = (  # these claims rest on
    *("cka-from-pretraining", "cka-last-layer", "source-forgotten", "pretraining-helps"),
    *("first-task-profits", "source-kept", "even-over-tasks"),
    *("anchor-helps", "anchor-helps-task-il", "anchor-below-twf"),
    *("pretraining-images-help", "pretraining-images-below-twf"),
)
PRINTED |= dict.fromkeys(FIGURES_ALONE, (None, 0))


@pytest.mark.parametrize("name", sorted({*PRINTED, *BY_NAME}))
def test_the_papers_own_numbers(name, monkeypatch):
    monkeypatch.chdir(PROJECT)
    value, count = PRINTED[name]
    found = claims.evaluate(BY_NAME[name], {}, PAPERS, {})["paper"]
    assert len(differences(name, list(PAPERS))) == count
    assert found == (value and pytest.approx(value, abs=0.005))


def test_every_claim_has_its_cells_in_the_papers_study():
    cells = estimates.values_of(Results.of_records(study.expand(PARAMS, "paper"), ()))
    for claim in CLAIMS:
        found, expected = differences(claim.name, cells.keys()), PRINTED[claim.name][1]
        assert len(found) == expected or (found and not expected)
    (control, _) = (key for key in cells if key.variant == "share-0-wide")  # and its spread
    for name in ("pretraining-images-help", "pretraining-images-below-twf"):
        assert all(control not in each for each in differences(name, cells.keys()))


def differences(name: str, keys: Keys) -> list[Difference]:
    return list(BY_NAME[name].differences(keys))


PLACE = CellKey("split-cifar10", "cifar100", "twf", "", 500, "class-il")


def measured(**finals: list[float | None]) -> dict[CellKey, pd.Series]:
    """Class-IL FAA by seed of methods on Split CIFAR-10 with 500; the others have 50."""
    values = {method: finals.get(method, [50.0] * 3) for method in MAIN}
    return {PLACE._replace(method=m): pd.Series(v, dtype=float).dropna() for m, v in values.items()}


def evaluated(name: str, faa: dict[CellKey, pd.Series], **untuned: str) -> dict[str, Any]:
    """A claim's row; by method the hyperparameter that is untuned."""
    names = {key: untuned.get(key.method, "") for key in faa}
    return claims.evaluate(BY_NAME[name], faa, PAPERS, names)


HALF = 2.77645 * 0.1 * (2 / 3) ** 0.5  # of Welch's interval: twice three seeds, deviation 0.1
EVEN = {"derpp": [60.0, 60.1, 60.2]}
FIRST = {"twf": [70.0, 70.2, 70.4]}
LOST = "each mean lacks a run, or has one that diverged"
ICARL = "twf over icarl, split-cifar10 from cifar100, buffer 500, class-il"


@pytest.mark.parametrize(
    ("name", "finals", "expected"),
    [
        (
            "gain-class-il",
            EVEN | {"twf": [62.2, 62.0, 62.1]},
            {"mean": 2.0, "low": 2 - HALF, "high": 2 + HALF}
            | {"n": 3, "verdict": "holds", "note": ""},
        ),
        (  # the paper gains 5.23 in this cell; ours is 1.0 at most
            "gain-class-il",
            {"twf": [60.1, 59.9, 60.1], "derpp": [60.0, 60.2, 59.8]},
            {"verdict": "smaller", "paper": 5.23},
        ),
        (  # independent samples: what seeds share counts for nothing
            "gain-class-il",
            {"twf": [63.0, 69.0, 82.0]},
            {"verdict": "undecided", "note": "more seeds"},
        ),
        (
            "first-class-il",
            FIRST | {"icarl": [71.0, 71.2, 71.4]},
            {"mean": -1.0, "verdict": "does not hold", "note": f"contradicted by {ICARL}"},
        ),
        (  # ER is lower in the mean than iCaRL, but varies so much that nobody knows
            "first-class-il",
            {"twf": [70.0] * 3, "icarl": [69.0] * 3, "er": [40.0, 90.0, 60.0]},
            {"mean": 1.0, "verdict": "smaller"},  # than the paper's least, 5.23, at any rate
        ),
        (
            "first-class-il",
            {"twf": [90.0]},
            {"mean": 40.0, "n": 1, "low": None, "high": None}
            | {"verdict": "undecided", "note": "a second seed in all cells"},
        ),
        (  # no common seed
            "gain-class-il",
            {"twf": [70.0, None], "derpp": [None, 60.0]},
            {"verdict": "not run", "note": LOST, "n_planned": 1},
        ),
        (
            "first-class-il",
            {"twf": [90.0] * 3, "er": []},
            {"verdict": "undecided", "note": "1 of 5 means", "mean": 40.0, "low": 40.0},
        ),
    ],
)
def test_the_verdict_on_a_claim(name, finals, expected):
    row = evaluated(name, measured(**finals))
    assert {key: row.get(key) for key in expected} == pytest.approx(expected, abs=1e-4)


def test_cells_that_are_alike_to_the_last_digit_decide_nothing():
    """A mean over six cells of a difference of 0 is 0, whatever its sums are rounded to."""
    finals = pd.Series([83.53172542457640, 70.1, 91.27097237448632])
    faa = {key._replace(buffer=b): finals for key in measured() for b in range(1, 7)}
    found = evaluated("gain-class-il", faa)
    assert (found["mean"], found["low"]) == (0.0, -found["high"])
    assert found["verdict"] == "undecided"


def test_a_claim_that_does_not_hold_names_where_it_is_contradicted():
    """ER is clearly above with both buffers, iCaRL with one; DER++ is above, but nobody knows."""
    faa = measured(twf=[70.0] * 3, er=[80.0, 80.1, 80.2], derpp=[60.0, 90.0, 70.0])
    faa |= {key._replace(buffer=5120): of_key for key, of_key in faa.items()}
    faa[PLACE._replace(method="icarl", buffer=5120)] = pd.Series([72.0, 72.1, 72.2])
    found = evaluated("first-class-il", faa)
    place = "split-cifar10 from cifar100, buffer"
    assert found["verdict"] == "does not hold"
    assert found["note"].removeprefix("contradicted by ").split("; ") == [
        f"twf over er, {place} 500, class-il",
        f"twf over er, {place} 5120, class-il",
        f"twf over icarl, {place} 5120, class-il",
    ]
    means = evaluated("gain-over-each-class-il", faa)  # iCaRL's: 10 on average
    assert means["note"].endswith(f"by twf over er, {place} 500, class-il, and 1 more on average")
    assert evaluated("first-class-il", faa, icarl="its rate")["verdict"] == "undecided"


def test_a_claim_of_every_cell_can_fail_early_and_not_hold_early():
    above, below = measured(twf=[90.0] * 3), measured(twf=[40.0] * 3)
    not_run = {key._replace(buffer=5120): pd.Series() for key in above}
    early = evaluated("first-class-il", above | not_run)
    assert (early["verdict"], early["note"]) == ("undecided", "5 of 10 means")
    assert evaluated("first-class-il", below | not_run)["verdict"] == "does not hold"
    assert evaluated("gain-class-il", below | not_run)["verdict"] == "not run"
    assert evaluated("first-class-il", {})["note"] == "no such cell in this study"


def test_a_rival_with_an_untuned_hyperparameter_decides_nothing():
    place = PLACE._replace(benchmark="split-cifar100", source="tiny-imagenet")
    rival = place._replace(method="derpp-ewc")
    faa = {place: pd.Series([70.0, 70.1]), rival: pd.Series([60.0, 60.1])}
    assert evaluated("anchor-below-twf", faa)["verdict"] == "holds"
    row = evaluated("anchor-below-twf", faa, **{"derpp-ewc": "its strength"})
    assert (row["verdict"], row["note"]) == ("undecided", "a search for its strength")
    assert row["mean"] == pytest.approx(10.0)
