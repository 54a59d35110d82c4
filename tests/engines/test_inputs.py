"""`twf plan` and both engines say the same of data sets and networks when params.yaml changes."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from miniature import (
    ER,
    FINETUNE,
    REPORT,
    TWF,
    call,
    change_params,
    idle,
    jobs,
    outputs,
    written,
)

from twf import files

FROM_LETTERS = {FINETUNE, ER, TWF}
LETTERS, DIGITS = str(files.checkpoint_file("letters")), str(files.data_file("digits"))

pytestmark = pytest.mark.slow


def recipe(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda values: values["sources"]["letters"]["pretraining"].update(changes)


def digits(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda values: values["datasets"]["digits"].update(changes)


def letters(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda values: values["datasets"]["letters"].update(changes)


def planned(folder: Path) -> dict[str, Any]:
    return json.loads(call(folder, "twf", "plan", "demo", "--json"))


def not_done(folder: Path) -> dict[str, int]:
    """How many jobs of each rule `twf plan` asks for."""
    found = planned(folder)
    states = {
        "data": found["data"].values(),
        "pretrain": found["sources"].values(),
        "run": [run["status"] for run in found["runs"].values()],
    }
    counts = {rule: sum(state != "done" for state in of) for rule, of in states.items()}
    return {rule: count for rule, count in counts.items() if count}


def agreed(folder: Path) -> dict[str, int]:
    """The same by `twf plan` and by Snakemake."""
    asked = jobs(folder, REPORT)
    found = {rule: count for rule, count in asked.items() if rule in ("data", "pretrain", "run")}
    assert found == not_done(folder)
    assert bool(found) == bool(asked)
    return found


CHANGES = [  # a change, the one that takes it back, what follows of it alone, how it is said
    (recipe(epochs=2), recipe(epochs=1), {"pretrain": 1, "run": 3}, "epochs: 1 -> 2"),
    (digits(seed=1), digits(seed=0), {"data": 1, "run": 4}, "seed: 0 -> 1"),
    (
        letters(train_per_class=5),
        letters(train_per_class=4),
        {"data": 1, "pretrain": 1, "run": 3},
        "train_per_class: 4 -> 5",
    ),
]


def test_a_change_is_one_for_all_and_touching_does_not_hide_it(project: Path) -> None:
    for change, back, needed, _ in CHANGES:
        change_params(project, change)
        assert agreed(project) == needed
        change_params(project, back)
    for change, *_ in CHANGES:
        change_params(project, change)
    said = call(project, "twf", "plan", "demo")
    assert all(why in said for *_, why in CHANGES)
    made, of_all = outputs(project), {"data": 2, "pretrain": 1, "run": 4}
    for words in (("twf", "run", "demo", ER), ("twf", "collect", "demo")):
        said = call(project, *words, fails=True)
        assert any(why in said for *_, why in CHANGES)
    said = call(project, "snakemake", REPORT, "--touch", "--cores", "1", fails=True)
    assert "stale" in said and "without --touch" in said
    assert agreed(project) == of_all
    assert set(outputs(project)) == set(made)
    for _, back, *_ in CHANGES:  # Snakemake's notes have the other parameters now
        change_params(project, back)
    assert agreed(project) == {}


def test_a_network_made_anew_by_hand_is_taken_and_its_runs_follow(project: Path) -> None:
    """By Snakemake, after which DVC trains nothing."""
    change_params(project, recipe(epochs=2))
    call(project, "twf", "pretrain", "train", "letters")
    assert agreed(project) == {"run": 3}
    call(project, "twf", "data", "prepare", "letters")  # of the same images, and newer
    assert agreed(project) == {"run": 3}
    before = outputs(project)
    call(project, "snakemake", REPORT, "--cores", "2")
    assert LETTERS not in written(before, outputs(project))
    assert agreed(project) == {} and idle(project)
    made = outputs(project)
    call(project, "dvc", "repro", "report@demo")
    assert written(made, outputs(project)) == set()


def test_a_stale_network_is_made_anew_with_what_follows_from_it(project: Path) -> None:
    """By DVC, which calls Snakemake, also where that has touched all files."""
    change_params(project, recipe(epochs=2))
    call(project, "snakemake", REPORT, "--touch", "--cores", "1", fails=True)
    before = outputs(project)
    call(project, "dvc", "repro", "report@demo")
    again = written(before, outputs(project))
    assert LETTERS in again and DIGITS not in again
    assert {str(files.record_file("demo", run)) for run in FROM_LETTERS} <= again
    assert agreed(project) == {}


def test_more_networks_of_a_source_leave_the_first_as_it_is(project: Path) -> None:
    change_params(project, lambda v: v["sources"]["letters"].update(seeds=[0, 1]))
    assert agreed(project) == {}


def test_an_imported_network_is_kept_until_it_is_stale_and_never_trained_over(
    project: Path,
) -> None:
    call(project, "twf", "pretrain", "export", "letters", "mine.safetensors")
    call(project, "twf", "pretrain", "import", "letters", "mine.safetensors")
    assert agreed(project) == {"run": 3}  # of another checkpoint
    data = project / files.data_file("letters")
    os.utime(data, (time.time() - 1,) * 2)
    data.touch()
    assert agreed(project) == {"run": 3}
    before = (project / LETTERS).read_bytes()
    change_params(project, recipe(epochs=2))
    said = call(project, "snakemake", REPORT, "--dry-run", fails=True)
    assert "was imported" in said and "epochs: 1 -> 2" in said and said.count("error: ") == 1
    assert (project / LETTERS).read_bytes() == before


def test_without_its_data_a_network_is_held_to_what_it_says_of_them(project: Path) -> None:
    """As in a clone: no data, and no notes of Snakemake."""
    shutil.rmtree(project / ".snakemake")
    (project / files.data_file("letters")).unlink()
    assert "pretrain" not in jobs(project, REPORT)
    change_params(project, letters(seed=1))
    assert planned(project)["sources"]["letters"] == "stale"
    assert jobs(project, REPORT)["pretrain"] == 1
