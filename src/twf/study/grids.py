"""A search for hyperparameters: what it tries, and what it found, as input of another study."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from twf.errors import UserError
from twf.study.params import MethodName, Name, Protocol, Search
from twf.study.reading import plain_values
from twf.study.types import Count, Hyperparameters, Strict


class BestHyperparameters(Strict):
    """The hyperparameters that a search found for one cell."""

    benchmark: Name
    method: MethodName
    buffer: Count | None
    protocol: Protocol
    hyperparameters: dict[str, int | float]


# What a search found, by benchmark, method, buffer and protocol: the values of a cell that it
# searched for; the others stay as in params.yaml.
Best = dict[tuple[str, str, int | None, Protocol], dict[str, int | float]]


def points(search: Search, method: str, base: Hyperparameters, where: str) -> list[Hyperparameters]:
    """The hyperparameters to try for one cell, of which `base` are those that params.yaml has.

    Every combination of the grid's values; what it does not name stays as in `base`. Where these
    are more than `search.points`, `base` and a random choice of the others, always the same (random
    search; Bergstra and Bengio, JMLR 2012). Raises `UserError`, with the grid's path `where`, for
    values that the method cannot have.
    """
    grid = search.grids[method]
    combinations = itertools.product(*grid.values())
    every = [base.changed(dict(zip(grid, values, strict=True)), where) for values in combinations]
    tried = list({values.model_dump_json(): values for values in every}.values())  # each once
    if search.points is None or len(tried) <= search.points:
        return tried
    others = [values for values in tried if values != base]
    return [base, *random.Random(0).sample(others, search.points - 1)]


def load_best_hyperparameters(path: str | None, study: str) -> Best:
    """What a search found; nothing where the study names no file.

    Raises `UserError` where the file is missing, is not what `twf search` writes, or has nothing.
    """
    if path is None:
        return {}
    where = f"studies.{study}.best_hyperparameters: {path}"
    try:
        values = plain_values(Path(path).read_text(encoding="utf-8"), Path(path))
        entries = TypeAdapter(list[BestHyperparameters]).validate_python(values)
    except FileNotFoundError:
        raise UserError(
            f"{where} is not there: the study that searches makes it, by snakemake --cores all "
            f"{path}"
        ) from None
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UserError(f"{where} is not what `twf search` writes: {error}") from None
    if not entries:
        raise UserError(f"{where} has no hyperparameters: all trials of its search diverged")
    return {(e.benchmark, e.method, e.buffer, e.protocol): e.hyperparameters for e in entries}
