"""The project's folder and what it is shared with: remotes, housekeeping."""

from __future__ import annotations

from typing import Annotated

import typer

from twf import files
from twf.cli.base import PROJECT, ParamsFile, app
from twf.study import reading

new_app = typer.Typer(no_args_is_help=True, help="Your own method, begun as a copy of another.")
app.add_typer(new_app, name="new", rich_help_panel=PROJECT)


@new_app.command("method")
def new_method(
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits, hyphens.")],
    like: Annotated[str, typer.Option(help="The method that it is copied from.")],
    title: Annotated[
        str | None, typer.Option(help="What tables and figures call it. Default: its name.")
    ] = None,
) -> None:
    """Make your own method: its loss, hyperparameters, values, and an experiment of the demo.

    It trains as the copied method does until you change its loss. Next: docs/add-a-method.md.
    """
    from twf.upkeep import method

    for path in method.new(name, like, title):
        print(path)
    print(f"next: change the loss in {method.LOSSES / name.replace('-', '_')}.py; then")
    print(f"  snakemake --cores all results/demo/tables/{name}.split-digits.md")
    print(f"  twf compare demo {name} {like}      # {name} minus {like}, with an interval")


@app.command(rich_help_panel=PROJECT)
def doctor(params: ParamsFile = files.PARAMS) -> None:
    """Say what is wrong with the set-up, and how to mend it; exit with 1 where something is.

    A line for each check, which is ok, a warning or wrong: code, packages, GPUs, data and
    checkpoints, tracking.
    """
    from twf.upkeep import doctor as examining

    if not examining.show(examining.examine(reading.load(params))):
        raise typer.Exit(1)
