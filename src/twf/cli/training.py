"""`twf plan`, `run` and `pretrain`: what there is to train, and training it."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.main import get_command

from twf import files
from twf.cli.app import NODES, ParamsFile, app
from twf.engines import environment, plans
from twf.errors import UserError
from twf.gpus.devices import device_for
from twf.study import expand, products, reading
from twf.study.params import Execution, Params
from twf.tracking import mode

Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="auto: a GPU if there is one.")
]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads.")]
SaveEvery = Annotated[
    float, typer.Option(min=0, envvar="TWF_SAVE_EVERY", help="Seconds between saved states.")
]
Way = Annotated[Execution, typer.Option(envvar="TWF_EXECUTION", help="See docs/speed.md.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", envvar="TWF_DETERMINISTIC", help="On a GPU too; slower.")
]
GpuSlots = Annotated[
    int | None, typer.Option(min=1, envvar="TWF_GPU_SLOTS", help="Jobs that share a GPU.")
]
Job = Annotated[bool, typer.Option("--job", hidden=True)]  # of Snakemake: it ends with it


@app.command()
def plan(
    study: Annotated[str | None, typer.Argument(help="A study, or params.yaml's default.")] = None,
    params: ParamsFile = files.PARAMS,
    every: Annotated[bool, typer.Option("--all", help="Runs that are done, too.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Only write its plan files.")] = False,
    stages: Annotated[bool, typer.Option("--stages", help="Only name its DVC stages.")] = False,
    forecast: Annotated[bool, typer.Option("--forecast", help="By what runs took before.")] = False,
) -> None:
    """List the runs of a study, and what remains to be done; with `--forecast`, how long it takes.

    `done`: a record by this plan is there; `made with other code`: the method's code was changed
    since, and the study does not follow it; `diverged`: its loss was not finite. `stale`: it is of
    another plan, and the difference is named, or cannot be read; it will be replaced. `to do`: no
    record; `3/15 epochs saved`: it was begun, and goes on from there.

    Next: `snakemake --cores all results/STUDY/report.html` does what remains.
    """
    from twf import forecast as forecasting
    from twf.results import status

    loaded = reading.load(params)
    planned = expand(loaded, study or loaded.study)
    if write:
        plans.write(loaded, planned.study)
    elif stages:
        print(*plans.stages(planned))
    else:
        held = status.of_runs(planned)
        if forecast:
            left = [run for run in planned.runs.values() if held[run.id].product.state != "done"]
            print(*forecasting.lines(left), sep="\n")
        else:
            status.show(planned, held, every)


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="A study, or a plan file: plans/STUDY/RUN.json.")],
    run: Annotated[str | None, typer.Argument(help="As `twf plan STUDY` lists it.")] = None,
    again: Annotated[
        Path | None, typer.Option(help="Instead of STUDY: a table of records.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="With --again: another one.")] = None,
    params: ParamsFile = files.PARAMS,
    device: Device = "auto",
    threads: Threads = 1,
    save_every: SaveEvery = 300.0,
    execution: Way = "plain",
    deterministic: Deterministic = False,
    gpu_slots: GpuSlots = None,
    job: Job = False,
) -> None:
    """Do one continual-learning run, and write its record: results/STUDY/runs/RUN.parquet.

    By its plan file, and nothing of params.yaml; with STUDY and RUN, the plans are written first.
    Needs the benchmark's data and the source's checkpoint. Called again after an interruption, it
    resumes from its last saved state; SIGTERM and Ctrl-C save before they end it. Next: `twf
    collect`.

    With `--again FILE RUN`, by the parameters that the record of RUN in FILE has, on its data and
    from its network, with today's code: results/again-STUDY/runs/RUN.parquet, and how the two
    differ.
    """
    with _training(job):
        from twf.jobs.run import execute

        recorded, path = None, Path(study)
        if again is not None:
            from twf.jobs import again as records

            recorded = records.read_row(again, study)
            planned, plan = records.planned(recorded, seed, again.parent)
            loaded = reading.load(params)
            slots, tracking = loaded.gpu_slots, loaded.tracking
        else:
            if run is not None:
                _held = plans.write(reading.load(params), study)
                path = products.named("run", files.run_plan(study, run))
            elif path.suffix != ".json":
                raise UserError(f"which run of {study}? `twf plan {study}` lists them")
            planned, plan = products.planned_run(path)
            slots, tracking = plans.settings()
        on = device_for(device, threads, gpu_slots or slots, deterministic)
        execute(planned, plan, tracking, on, save_every, execution)
        if recorded is not None:
            made = records.read_row(files.record_file(planned.study, planned.id), planned.id)
            print(*records.compared(recorded, made), sep="\n")


@app.command(rich_help_panel=NODES)
def pretrain(
    source: Annotated[str, typer.Argument(help="A source, or plans/checkpoints/SOURCE.json.")],
    params: ParamsFile = files.PARAMS,
    device: Device = "auto",
    threads: Threads = 1,
    save_every: SaveEvery = 300.0,
    execution: Way = "plain",
    deterministic: Deterministic = False,
    gpu_slots: GpuSlots = None,
    job: Job = False,
) -> None:
    """Train a network on a source, or take the weights it names: checkpoints/SOURCE.safetensors.

    To train needs the source's data (`twf data prepare`). By a plan file, and nothing of
    params.yaml; for a source's name, the plans are written first. Called again after an
    interruption, it resumes from its last saved state. Next: `twf run`.
    """
    with _training(job):
        from twf.jobs import pretraining

        path = Path(source)
        if path.suffix != ".json":
            _held = plans.write(reading.load(params))
            path = products.named("source", files.checkpoint_plan(source))
        slots, _ = plans.settings()
        on = device_for(device, threads, gpu_slots or slots, deterministic)
        pretraining.pretrain(path.stem, products.read_plan(path), on, save_every, execution)


@contextlib.contextmanager
def _training(job: bool) -> Iterator[None]:
    """Train one thing: a `job` ends with Snakemake, and where it was saved is said at its end."""
    if job:
        environment.stop_with_parent()
    from twf.jobs.resume import STATUS, Stopped

    try:
        yield
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        raise typer.Exit(STATUS) from None


def refuse_wrong_variables(params: Params) -> None:
    """Raise `UserError` for a variable of the environment that `twf run` would refuse."""
    command = get_command(app).commands["run"]  # type: ignore[attr-defined]
    try:
        command.make_context("run", ["STUDY", "RUN"])  # reads the options' variables
    except typer.BadParameter as error:
        raise UserError(error.format_message()) from None
    mode.decided(params.tracking)
