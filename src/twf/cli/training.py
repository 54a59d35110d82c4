"""`twf plan`, `run`, `pretrain` and `data`: what there is to do up to the records, and doing it."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from twf import files
from twf.engines import environment, plans
from twf.errors import UserError, lookup
from twf.gpus.devices import device_for
from twf.study import expand, products, reading
from twf.study.params import Execution, Params

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
NODES, PROJECT = "Nodes of the pipeline", "The project"  # groups of commands; the first has no name

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
Job = Annotated[int | None, typer.Option(hidden=True)]  # of the Snakemake with this process id


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


def group(name: str, panel: str, text: str) -> typer.Typer:
    """Commands that share their first word."""
    commands = typer.Typer(no_args_is_help=True, help=text)
    app.add_typer(commands, name=name, rich_help_panel=panel)
    return commands


@app.command()
def plan(
    study: Annotated[str | None, typer.Argument(help="A study, or params.yaml's default.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Runs that are done, too.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Only write its plan files (of data without STUDY).")
    ] = False,
    stages: Annotated[bool, typer.Option("--stages", help="Only name its DVC stages.")] = False,
    forecast: Annotated[bool, typer.Option("--forecast", help="By what runs took before.")] = False,
) -> None:
    """List the runs of a study, and what remains to be done; with `--forecast`, how long it takes.

    `made with other code`: the method's code was changed since, and the study does not follow it;
    `stale`: the record is of another plan, as named, or torn, and will be replaced; `3/15 epochs
    saved`: the run was begun, and goes on from there. Next: `snakemake --cores all
    results/STUDY/report.html` does what remains.
    """
    from twf import forecast as forecasting
    from twf.results import status

    params = reading.load(files.PARAMS)
    if write:
        plans.write(params, *([study] if study else []))
        return
    planned = expand(params, study or params.study)
    if stages:
        print(*plans.stages(planned))
    elif forecast:
        held = status.of_runs(planned)
        left = [run for run in planned.runs.values() if held[run.id].state != "done"]
        print(*forecasting.lines(left), sep="\n")
    else:
        status.show(planned, status.of_runs(planned), every)


@app.command()
def run(
    study: Annotated[
        str, typer.Argument(help="A study, or plans/STUDY/RUN.json; with --again, RUN.")
    ],
    run: Annotated[str | None, typer.Argument(help="As `twf plan STUDY` lists it.")] = None,
    again: Annotated[
        Path | None, typer.Option(help="Instead of STUDY: a table of records.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="With --again: another.")
    ] = None,
    threads: Threads = 1,
    save_every: SaveEvery = 300.0,
    execution: Way = "plain",
    deterministic: Deterministic = False,
    gpu_slots: GpuSlots = None,
    job: Job = None,
) -> None:
    """Do one continual-learning run, and write its record: results/STUDY/runs/RUN.parquet.

    By its plan file, and nothing of params.yaml; with STUDY and RUN, the plans are written first.
    Called again after an interruption, SIGTERM or Ctrl-C, it goes on from its last saved state. A
    record that is there as planned stays.

    With `--again FILE RUN`, always anew, by the parameters that the record of RUN in FILE has, on
    its data and from its network, with today's code: results/again-STUDY/runs/RUN.parquet, and how
    the two differ.
    """
    with _training(job):
        from twf.jobs.run import execute

        recorded, path = None, Path(study)
        if again is None and seed is not None:
            raise UserError("--seed is for --again; a run's name has its seed: RUN.s1")
        if again is not None and run is not None:
            raise UserError(f"--again takes one run, not {study} and {run}")
        if again is not None:
            from twf.jobs import again as records

            _held = plans.write(reading.load(files.PARAMS))
            recorded = records.read_row(again, study)
            planned, plan = records.planned(recorded, seed, again.parent)
        else:
            if run is not None:
                _held = plans.write(reading.load(files.PARAMS), study)
                path = products.named("run", files.run_plan(study, run))
            elif path.suffix != ".json":
                raise UserError(f"which run of {study}? `twf plan {study}` lists them")
            planned, plan = products.planned_run(path)
            made = files.record_file(planned.study, planned.id)
            if not job and plans.is_made(made, path):
                print(f"{made} is there, as planned: delete it to train again")
                return
        slots, tracking = plans.settings()
        device = device_for(threads, gpu_slots or slots, deterministic)
        execute(planned, plan, tracking, device, save_every, execution)
        if recorded is not None:
            row = records.read_row(files.record_file(planned.study, planned.id), planned.id)
            print(*records.compared(recorded, row), sep="\n")


@app.command(rich_help_panel=NODES)
def pretrain(
    source: Annotated[str, typer.Argument(help="A source, or plans/checkpoints/SOURCE.json.")],
    threads: Threads = 1,
    save_every: SaveEvery = 300.0,
    execution: Way = "plain",
    deterministic: Deterministic = False,
    gpu_slots: GpuSlots = None,
    job: Job = None,
) -> None:
    """Train a network on a source, or take the weights it names: checkpoints/SOURCE.safetensors.

    By a plan file, and nothing of params.yaml; for a source's name, the plans are written first.
    Called again after an interruption, it goes on from its last saved state. Next: `twf run`.
    """
    with _training(job):
        from twf.jobs import pretraining

        path, _held = _plan_file("source", source, files.checkpoint_plan)
        plan, made = products.read_plan(path), files.checkpoint_file(path.stem)
        if not job and plans.is_made(made, path):
            print(f"{made} is there, as planned: delete it to train again")
            return
        device = device_for(threads, gpu_slots or plans.settings()[0], deterministic)
        pretraining.pretrain(path.stem, plan, device, save_every, execution)


@contextlib.contextmanager
def _training(job: int | None) -> Iterator[None]:
    """Train one thing: a `job` ends with Snakemake, and where it was saved is said at its end."""
    if job:
        environment.stop_with_parent(job)
    from twf.jobs.resume import Stopped

    try:
        yield
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        raise typer.Exit(stopped.status) from None


def _plan_file(kind: str, name: str, file_of: Callable[[str], Path]) -> tuple[Path, plans.Written]:
    """The plan file that `name` is, or that of a name, which is written first; what holds it."""
    if name.endswith(".json"):
        if Path(name).parent.name != (folder := file_of("").parent).name:
            raise UserError(f"{name} is not the plan of a {kind}: these are in {folder}")
        return Path(name), plans.Written()
    held = plans.write(reading.load(files.PARAMS))
    return products.named(kind, file_of(name)), held


data_app = group("data", NODES, "Data sets: fetch their archives, prepare or import arrays.")


@data_app.command("fetch")
def data_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Such as cifar10.")] = None,
    study: Annotated[str | None, typer.Option(help="All that a study still needs.")] = None,
) -> None:
    """Fetch official archives, and check them: archives/NAME. Next: `twf data prepare`."""
    from twf.data import registry
    from twf.data.fetch import fetch

    wanted = list(names or [])
    if study is not None:
        params = reading.load(files.PARAMS)
        wanted += registry.needed(params, expand(params, study))
    elif not wanted:
        raise UserError(f"say which: {', '.join(registry.load())}; or --study STUDY")
    for name, entry in [(name, registry.entry(name)) for name in wanted]:  # all, or none
        fetch(name, entry)


@data_app.command("prepare")
def data_prepare(
    name: Annotated[str, typer.Argument(help="A data set, or its plan file: plans/data/X.json.")],
) -> None:
    """Make the arrays of a data set: data/NAME.safetensors. Next: `twf pretrain`.

    By a plan file, and nothing of params.yaml; for a name, the plans are written first.
    """
    from twf.data.prepare import prepare

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and what was unpacked goes first
    path, _held = _plan_file("data set", name, files.data_plan)
    dataset = products.planned_dataset(products.read_plan(path))
    prepare(path.stem, dataset, files.data_file(path.stem))


@data_app.command("import")
def data_import(
    name: Annotated[str, typer.Argument(help="A data set of params.yaml, for example cifar10.")],
    file: Annotated[Path, typer.Argument(help="A .npz, or a folder of folders: docs/data.md.")],
) -> None:
    """Take a published data set from a file of yours: data/NAME.safetensors.

    Their number is checked, and fingerprints where the registry has them. Next: `twf plan STUDY`.
    """
    from twf.data.prepare import import_data

    datasets = reading.load(files.PARAMS).datasets
    remedy = f"there is {', '.join(datasets)}; your own is no import: docs/add-a-data-set.md"
    import_data(name, lookup("data set", datasets, name, str(files.PARAMS), remedy), file)


def refuse_wrong_variables(params: Params) -> None:
    """Raise `UserError` for a variable of the environment that `twf run` would refuse."""
    from twf.tracking.live import decided

    command = get_command(app).commands["run"]  # type: ignore[attr-defined]
    try:
        command.make_context("run", ["STUDY", "RUN"])  # reads the options' variables
    except typer.BadParameter as error:
        raise UserError(error.format_message()) from None
    decided(params.tracking)
