"""`twf plan`, `pretrain` and `run`: what there is to train, and training it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from twf import files
from twf.cli.base import (
    NODES,
    DefaultStudyArgument,
    DeterministicOption,
    DeviceOption,
    ExecutionOption,
    JobOption,
    ParamsFile,
    PlannedSourceArgument,
    SaveOption,
    SlotsOption,
    SourceArgument,
    ThreadsOption,
    app,
)
from twf.engines import environment, plans
from twf.errors import UserError
from twf.gpus.devices import device_for
from twf.study import expand, products, reading

pretrain_app = typer.Typer(no_args_is_help=True, help="Pretrained networks: where runs start.")
app.add_typer(pretrain_app, name="pretrain", rich_help_panel=NODES)


@app.command()
def plan(
    study: DefaultStudyArgument = None,
    params: ParamsFile = files.PARAMS,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    todo: Annotated[
        bool, typer.Option("--todo", help="The records of the runs that are not done, no more.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every run, also where nothing is to be done.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the study's plan files, and no more.")
    ] = False,
    stages: Annotated[
        bool, typer.Option("--stages", help="DVC's stages of the study, and no more.")
    ] = False,
    forecast: Annotated[
        bool,
        typer.Option("--forecast", help="How long what remains takes, by what runs took before."),
    ] = False,
) -> None:
    """List the runs of a study, and what remains to be done; with `--forecast`, how long it takes.

    `done`: a record by this plan is there; `made with other code`: the method's code was changed
    since, and the study does not follow it; `diverged`: its loss became infinite. `stale`: it is of
    another plan, and the difference is named, or cannot be read; it will be replaced. `to do`: no
    record; `3/15 epochs saved`: it was begun, and goes on from there.

    Next: `snakemake --cores all results/STUDY/report.html` does what remains.

    A forecast is by the recorded runs of each benchmark, method, width and device, and names what
    none was recorded of.
    """
    from twf.results import status

    loaded = reading.load(params)
    planned = expand(loaded, study or loaded.study)
    if write:
        plans.write(loaded, planned.study)
        return
    if stages:
        print(*plans.stages(planned))
        return
    found = status.of_plan(loaded, planned)
    if todo:
        for name, entry in found["runs"].items():
            if entry["status"] != "done":
                print(files.record_file(planned.study, name))
        return
    if forecast:
        from twf import forecast as forecasting

        left = [r for r in planned.runs.values() if found["runs"][r.id]["status"] != "done"]
        found["forecast"] = forecasting.forecast(left)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    status.show(found, not forecast, every)
    if forecast:
        forecasting.show(found["forecast"])


@pretrain_app.command("train")
def pretrain_train(
    source: PlannedSourceArgument,
    params: ParamsFile = files.PARAMS,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    save_every: SaveOption = 300.0,
    execution: ExecutionOption = "plain",
    deterministic: DeterministicOption = False,
    gpu_slots: SlotsOption = None,
    job: JobOption = False,
) -> None:
    """Train a network on a source, or take the weights it names: checkpoints/SOURCE.safetensors.

    Needs the source's data (`twf data prepare`). Called again after an interruption, it resumes
    from its last saved state. Next: `twf run`.
    """
    if job:
        environment.stop_with_parent()
    from twf.jobs.pretraining import pretrain

    with planned_network(params, source) as (name, planned, shared), resumable():
        on = device_for(device, threads, gpu_slots or shared, deterministic)
        pretrain(name, planned, on, save_every, execution)


@pretrain_app.command("import")
def pretrain_import(
    source: SourceArgument,
    file: Annotated[Path, typer.Argument(help="Weights: .safetensors, or .pth of torch.save.")],
    params: ParamsFile = files.PARAMS,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    gpu_slots: SlotsOption = None,
) -> None:
    """Take weights that were trained elsewhere for a source: checkpoints/SOURCE.safetensors.

    If the source's data are prepared (`twf data prepare`), the accuracy on its test images is
    measured and kept with them. Next: `twf run`.
    """
    from twf.jobs.pretraining import import_weights

    with planned_network(params, source) as (name, planned, shared):
        on = device_for(device, threads, gpu_slots or shared)
        import_weights(name, planned, file, on)


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="A study, or a plan file: plans/STUDY/RUN.json.")],
    run: Annotated[
        str | None, typer.Argument(help="A run's identifier, as `twf plan STUDY` lists them.")
    ] = None,
    again: Annotated[
        Path | None,
        typer.Option(help="A table of records, whose RUN is run again: twf run --again FILE RUN."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="With --again: another seed than the record's.")
    ] = None,
    params: ParamsFile = files.PARAMS,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    save_every: SaveOption = 300.0,
    execution: ExecutionOption = "plain",
    deterministic: DeterministicOption = False,
    gpu_slots: SlotsOption = None,
    job: JobOption = False,
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
    if job:
        environment.stop_with_parent()
    from twf.jobs.run import execute

    held, recorded = None, None
    if again is not None:
        from twf.jobs import again as records

        recorded = records.read_row(again, study)
        planned, plan = records.planned(recorded, seed, again.parent)
        loaded = reading.load(params)
        slots, tracking = loaded.gpu_slots, loaded.tracking
    else:
        path = Path(study)
        if run is not None:
            loaded = reading.load(params)
            path = files.run_plan(study, expand(loaded, study).named_run(run).id)
            held = plans.write(loaded, study)
        elif path.suffix != ".json":
            raise UserError(f"which run of {study}? `twf plan {study}` lists them")
        planned, plan = products.planned_run(path)
        slots, tracking = plans.settings()
    with resumable():
        on = device_for(device, threads, gpu_slots or slots, deterministic)
        execute(planned, plan, tracking, on, save_every, execution)
    del held  # the plans, until here
    if recorded is not None:
        print(*records.compared(recorded, records.made(planned)), sep="\n")


@contextlib.contextmanager
def planned_network(params: Path, source: str) -> Iterator[tuple[str, products.Values, int]]:
    """A source's name, the plan of its network, and the jobs that share a GPU.

    By a plan file, and nothing of `params.yaml`; for a source's name, the plans are written first,
    and held.
    """
    path, held = Path(source), None
    if path.suffix != ".json":
        loaded = reading.load(params)
        loaded.named_source(source)
        held = plans.write(loaded)
        path = files.checkpoint_plan(source)
    plan = products.read_plan(path)
    yield path.stem, plan, plans.settings()[0]
    del held


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Train one thing; say so where it was stopped and saved."""
    from twf.jobs.resume import STATUS, Stopped

    try:
        yield
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        raise typer.Exit(STATUS) from None
