"""What all commands share: the application, arguments and options."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from twf.study import Plan, expand, reading
from twf.study.params import Execution

HELP = """Reproduce *Transfer without Forgetting*: each command makes one node of the pipeline.

`snakemake --cores all results/demo/report.html` makes all of the demo; the commands here are what
it calls, and each can be called by hand with the same words: data fetch → data prepare → pretrain
train → run → collect → report.
"""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
NODES, PROJECT = "Nodes of the pipeline", "The project"  # groups of commands; the first has no name


def _show_version(asked: bool) -> None:
    if asked:
        print(f"twf {version('twf')}")
        raise typer.Exit


@app.callback(help=HELP)
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    pass


ParamsFile = Annotated[Path, typer.Option("--params", help="The study as data.")]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="auto: a GPU if there is one.")
]
ThreadsOption = Annotated[int, typer.Option(min=1, help="CPU threads.")]
SaveOption = Annotated[
    float, typer.Option(min=0, envvar="TWF_SAVE_EVERY", help="Seconds between saved states.")
]
ExecutionOption = Annotated[
    Execution,
    typer.Option(
        envvar="TWF_EXECUTION", help="How training steps are executed; captured needs a GPU."
    ),
]
DeterministicOption = Annotated[
    bool,
    typer.Option(
        "--deterministic", envvar="TWF_DETERMINISTIC", help="The same bits on a GPU too; slower."
    ),
]
SlotsOption = Annotated[
    int | None,
    typer.Option(
        min=1, envvar="TWF_GPU_SLOTS", help="Jobs that share a GPU; gpu_slots where not given."
    ),
]
JobOption = Annotated[bool, typer.Option("--job", hidden=True)]  # of Snakemake: it ends with it
SourceArgument = Annotated[
    str, typer.Argument(help="A source of params.yaml, for example cifar100.")
]
PlannedSourceArgument = Annotated[
    str, typer.Argument(help="A source, or its plan file: plans/checkpoints/SOURCE.json.")
]
StudyArgument = Annotated[str, typer.Argument(help="A study of params.yaml, for example demo.")]
DefaultStudyArgument = Annotated[
    str | None, typer.Argument(help="A study of params.yaml; without one, its default.")
]


def plan_of(params: Path, study: str) -> Plan:
    """The plan of a study in a file of parameters."""
    return expand(reading.load(params), study)
