"""A search for hyperparameters: what it tries, and what it found, as input of another study."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from twf.errors import UserError
from twf.study.methods import METHODS
from twf.study.params import BestHyperparameters, Protocol, Search
from twf.study.types import Hyperparameters

Place = tuple[str, str, int | None, Protocol]  # benchmark, method, buffer, protocol


def points(search: Search, method: str, base: Hyperparameters) -> list[Hyperparameters]:
    """The hyperparameters to try for one cell, of which `base` are those that params.yaml has.

    Every combination of the grid's values; what the grid does not name stays as in `base`. Where
    these are more than `search.points`, `base` and a random choice of the others, always the same
    (random search; Bergstra and Bengio, JMLR 2012).
    """
    grid = search.grids[method]
    combinations = itertools.product(*grid.values())
    tried = [base.changed(dict(zip(grid, values, strict=True))) for values in combinations]
    if search.points is None or len(tried) <= search.points:
        return tried
    others = [values for values in tried if values != base]
    return [base, *random.Random(0).sample(others, search.points - 1)]


def load_best_hyperparameters(path: str | None, study: str) -> dict[Place, Hyperparameters]:
    """The hyperparameters that a search found, by cell; none where the study names no file.

    Raises `UserError` where the file is missing or is not what `twf search` writes.
    """
    if path is None:
        return {}
    at = f"studies.{study}.best_hyperparameters"
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        best = TypeAdapter(list[BestHyperparameters]).validate_python(values)
        return {
            (b.benchmark, b.method, b.buffer, b.protocol): METHODS[b.method].hyperparameters(
                **b.hyperparameters
            )
            for b in best
        }
    except OSError as error:
        raise UserError(
            f"{at}: no {path} ({error.strerror}); it is made by the study that searches: "
            f"snakemake --cores all {path}"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        raise UserError(f"{at}: {path} is not what `twf search` writes: {error}") from None
