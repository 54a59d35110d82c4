"""What is wrong with a set-up, and how to mend it: checks, none of which changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from twf.study.params import Params
from twf.upkeep.doctor import engines, environment, folder
from twf.upkeep.doctor.check import Check, State

COLOURS: dict[State, str] = {"ok": "green", "warning": "yellow", "wrong": "red"}


def examine(params: Params, study: str) -> Iterator[Check]:
    """All checks, one after the other."""
    yield from environment.packages()
    yield from environment.gpus()
    yield from folder.files_here()
    yield from folder.space(params, study)
    yield from folder.clock()
    yield from engines.snakemake()
    yield from engines.dvc()
    yield from engines.tracking(params)
    yield from engines.states(params)


def show(checks: Iterable[Check]) -> bool:
    """Print each check as it is done; whether nothing is wrong."""
    console = Console(soft_wrap=True, highlight=False)
    well = True
    for check in checks:
        said = f"{check.name:<11}{check.said}"
        if check.remedy:
            said += f". To mend it: {check.remedy}"
        console.print(Text.assemble((f"{check.state:<8}", COLOURS[check.state]), said))
        well &= check.state != "wrong"
    return well
