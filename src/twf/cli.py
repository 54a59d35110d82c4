"""The `twf` command: one command per node of the pipeline, and a few to look around.

Heavy imports stay inside the commands, so that help and planning come at once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from twf import files, warm
from twf import params as parameters
from twf.errors import UserError
from twf.params import Params
from twf.study import Plan, expand

if TYPE_CHECKING:
    import torch

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Reproduce *Transfer without Forgetting*: each command makes one node of the pipeline.

    Start with `twf plan` to see what a study holds and what remains to be done. `snakemake --cores
    all results/demo/report.html` makes all of the demo; the commands here are what it calls, and
    each can be called by hand with the same words:

    data prepare → pretrain train → run → collect → table → report
    """,
)
data_app = typer.Typer(no_args_is_help=True, help="Data sets: prepare their arrays.")
pretrain_app = typer.Typer(no_args_is_help=True, help="Pretrained networks: where runs start.")
app.add_typer(data_app, name="data")
app.add_typer(pretrain_app, name="pretrain")

ParamsFile = Annotated[
    Path, typer.Option("--params", help="The study as data.", envvar="TWF_PARAMS")
]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="auto: a GPU where there is one.")
]
ThreadsOption = Annotated[int, typer.Option(min=1, help="CPU threads.")]
StudyArgument = Annotated[str, typer.Argument(help="A study of params.yaml, for example demo.")]


def main() -> None:
    """Run the command line. A user's mistake prints its message alone and exits with 2."""
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


@app.command()
def plan(
    study: Annotated[
        str | None, typer.Argument(help="A study of params.yaml; its default where none.")
    ] = None,
    params: ParamsFile = files.PARAMS,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List the runs of a study, and what remains to be done.

    `done`: a record with these parameters is there. `stale`: its record has other parameters.
    `to do`: no record. Next: `snakemake --cores all results/STUDY/report.html` does what remains.
    """
    from twf import planning

    loaded = parameters.load(params)
    status = planning.status(loaded, expand(loaded, study or loaded.study))
    print(json.dumps(status, indent=2)) if as_json else planning.show(status)


@data_app.command("prepare")
def data_prepare(
    name: Annotated[str, typer.Argument(help="A data set of params.yaml, for example digits.")],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Make the arrays of a data set: data/NAME.safetensors. Next: `twf pretrain train`."""
    from twf.data import prepare

    loaded = parameters.load(params)
    if name not in loaded.datasets:
        known = ", ".join(loaded.datasets)
        raise UserError(f"no data set {name!r} in {params}; there is {known}")
    prepare(name, loaded.datasets[name], files.data_file(name))


@pretrain_app.command("train")
def pretrain_train(
    source: Annotated[str, typer.Argument(help="A source of params.yaml, for example letters.")],
    params: ParamsFile = files.PARAMS,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
) -> None:
    """Train a network on a source, or take the weights it names: checkpoints/SOURCE.safetensors.

    Needs the source's data (`twf data prepare`). Next: `twf run`.
    """
    from twf.training.pretraining import pretrain

    pretrain(parameters.load(params), source, _device(device, threads))


@pretrain_app.command("import")
def pretrain_import(
    source: Annotated[str, typer.Argument(help="A source of params.yaml, for example cifar100.")],
    file: Annotated[Path, typer.Argument(help="Weights: .safetensors, or .pth of torch.save.")],
    params: ParamsFile = files.PARAMS,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
) -> None:
    """Take weights that were trained elsewhere for a source: checkpoints/SOURCE.safetensors.

    Prepare the source's data first (`twf data prepare`): the accuracy on its test images is then
    measured and kept. Next: `twf run`.
    """
    from twf.training.pretraining import import_weights

    import_weights(parameters.load(params), source, file, _device(device, threads))


@app.command()
def run(
    study: StudyArgument,
    run: Annotated[str, typer.Argument(help="A run's identifier, as `twf plan STUDY` lists them.")],
    params: ParamsFile = files.PARAMS,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
) -> None:
    """Do one continual-learning run, and write its record: results/STUDY/runs/RUN.parquet.

    Needs the benchmark's data and the source's checkpoint. Next: `twf collect`.
    """
    if device != "cuda" and (status := warm.hand_over()) is not None:
        raise typer.Exit(status)
    from twf.training.run import execute

    loaded = parameters.load(params)
    planned = expand(loaded, study)
    if run not in planned.runs:
        raise UserError(f"study {study} has no run {run!r}; `twf plan {study}` lists its runs")
    execute(loaded, planned.runs[run], _device(device, threads))


@app.command()
def collect(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Put all records of a study into results/STUDY/runs.parquet. Next: `twf table`."""
    from twf.results import record

    paths = [files.record_file(study, run) for run in _plan(params, study).runs]
    record.collect(paths, files.runs_file(study))


@app.command()
def table(
    study: StudyArgument,
    table: Annotated[
        str, typer.Argument(help="EXPERIMENT.BENCHMARK, for example main.split-digits.")
    ],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Make one table of a study, as Parquet, CSV, Markdown and LaTeX. Next: `twf report`."""
    from twf.results import tables

    planned = _plan(params, study)
    if table not in planned.tables:
        known = ", ".join(planned.tables)
        raise UserError(f"study {study} has no table {table!r}; there is {known}")
    tables.write(planned, table)


@app.command()
def report(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Make the report of a study, one HTML file to open or send: results/STUDY/report.html."""
    from twf.results import report

    report.write(_plan(params, study))


@app.command()
def schema(
    output: Annotated[Path, typer.Argument(help="Where to write it.")] = files.SCHEMA,
) -> None:
    """Write the JSON schema of params.yaml, after a change of the types in twf.params."""
    with files.atomic(output) as partial:
        partial.write_text(parameters.schema())


def _plan(params: Path, study: str) -> Plan:
    loaded: Params = parameters.load(params)
    return expand(loaded, study)


def _device(name: Literal["auto", "cpu", "cuda"], threads: int) -> torch.device:
    """The device to train on, with PyTorch set up for it."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    import torch

    torch.set_num_threads(threads)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("no CUDA device here; leave --device away, or say --device cpu")
    return torch.device(name)
