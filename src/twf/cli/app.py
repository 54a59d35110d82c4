"""The application, and the arguments and options that several commands share."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
NODES, PROJECT = "Nodes of the pipeline", "The project"  # groups of commands; the first has no name


def group(name: str, panel: str, text: str) -> typer.Typer:
    """Commands that share their first word."""
    commands = typer.Typer(no_args_is_help=True, help=text)
    app.add_typer(commands, name=name, rich_help_panel=panel)
    return commands


def _show_version(asked: bool) -> None:
    if asked:
        print(f"twf {version('twf')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """Reproduce *Transfer without Forgetting*: each command makes one node of the pipeline.

    `snakemake --cores all results/demo/report.html` makes all of the demo; the commands here are
    what it calls, and each can be called by hand with the same words: data fetch → data prepare →
    pretrain → run → collect → report.
    """


ParamsFile = Annotated[Path, typer.Option("--params", help="The study as data.")]
Study = Annotated[str, typer.Argument(help="A study of params.yaml, for example demo.")]
