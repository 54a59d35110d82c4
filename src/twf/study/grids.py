"""A search for hyperparameters: what it tries, and what it found, as input of another study."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from twf.errors import UserError
from twf.study.methods import METHODS
from twf.study.params import BestFactors, BestHyperparameters, Protocol, Search
from twf.study.types import Hyperparameters

SearchKey = tuple[str, str, int | None, Protocol]  # benchmark, method, buffer, protocol


def points(search: Search, method: str, base: Hyperparameters) -> list[Hyperparameters]:
    """The hyperparameters to try for one cell, of which `base` are those that params.yaml has.

    Every combination of the grid's values, or of `base`'s times the factors; what these do not name
    stays as in `base`. Where these are more than `search.points`, `base` and a random choice of the
    others, always the same (random search; Bergstra and Bengio, JMLR 2012).
    """
    grid: Mapping[str, list[int | float]] = search.grids.get(method, {})
    if search.factors:
        grid = {key: [times(base, key, f) for f in fs] for key, fs in search.factors.items()}
    combinations = itertools.product(*grid.values())
    try:
        every = [base.changed(dict(zip(grid, values, strict=True))) for values in combinations]
    except UserError as error:
        raise UserError(f"a search cannot try this for {method}: {error}") from None
    tried = list({values.model_dump_json(): values for values in every}.values())  # each once
    if search.points is None or len(tried) <= search.points:
        return tried
    others = [values for values in tried if values != base]
    return [base, *random.Random(0).sample(others, search.points - 1)]


def times(base: Hyperparameters, key: str, factor: float) -> float:
    """A hyperparameter times a factor, to four digits."""
    return float(f"{getattr(base, key) * factor:.4g}")


@dataclass(frozen=True)
class Best:
    """What a search found: of a cell's own hyperparameters, or factors for all cells of a method.

    What it did not search for stays as in params.yaml.
    """

    cells: dict[SearchKey, dict[str, int | float]] = field(default_factory=dict)
    factors: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    def chosen(self, key: SearchKey) -> set[str]:
        """The names of the hyperparameters that were searched for in a cell."""
        if key in self.cells:
            return set(self.cells[key])
        return set(self.factors.get(key[:2], {}))

    def of(self, key: SearchKey, base: Hyperparameters) -> Hyperparameters | None:
        """Those of a cell that has `base` in params.yaml; None where it was not searched for."""
        if key in self.cells:
            return base.changed(self.cells[key])
        factors = self.factors.get(key[:2])
        if factors is None:
            return None
        return base.changed({name: times(base, name, f) for name, f in factors.items()})


def load_best_hyperparameters(path: str | None, study: str) -> Best:
    """What a search found; nothing where the study names no file.

    Raises `UserError` where the file is missing, is not what `twf search` writes, or has nothing.
    """
    if path is None:
        return Best()
    at = f"studies.{study}.best_hyperparameters"
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        entries = TypeAdapter(list[BestHyperparameters | BestFactors]).validate_python(values)
    except OSError as error:
        raise UserError(
            f"{at}: no {path} ({error.strerror}); it is made by the study that searches: "
            f"snakemake --cores all {path}"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        raise UserError(f"{at}: {path} is not what `twf search` writes: {error}") from None
    if not entries:
        raise UserError(f"{at}: {path} has no hyperparameters: all trials of its search diverged")
    best = Best()
    for entry in entries:
        found = entry.factors if isinstance(entry, BestFactors) else entry.hyperparameters
        known = METHODS[entry.method].hyperparameters.model_fields
        if unknown := found.keys() - known.keys():
            raise UserError(
                f"{at}: {path}: {entry.method} has no hyperparameter {', '.join(sorted(unknown))}; "
                f"it has {', '.join(known)}"
            )
        if isinstance(entry, BestFactors):
            best.factors[entry.benchmark, entry.method] = entry.factors
        else:
            key = (entry.benchmark, entry.method, entry.buffer, entry.protocol)
            best.cells[key] = entry.hyperparameters
    return best
