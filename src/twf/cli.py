"""The `twf` command: one command per node of the pipeline, and a few to look around.

Heavy imports stay inside the commands, so that help and planning come at once.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from twf import files, machine, warm
from twf import params as parameters
from twf.devices import device_for, watched
from twf.errors import GpuError, UserError
from twf.machine import Execution
from twf.params import Dataset, Params
from twf.study import Plan, expand

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Reproduce *Transfer without Forgetting*: each command makes one node of the pipeline.

    Start with `twf plan` to see what a study holds and what remains to be done. `snakemake --cores
    all results/demo/report.html` makes all of the demo; the commands here are what it calls, and
    each can be called by hand with the same words:

    data fetch → data prepare → pretrain train → run → collect → table, compare, metrics, figures
    → describe → report
    """,
)
data_app = typer.Typer(
    no_args_is_help=True, help="Data sets: fetch their archives, prepare their arrays."
)
pretrain_app = typer.Typer(no_args_is_help=True, help="Pretrained networks: where runs start.")
app.add_typer(data_app, name="data")
track_app = typer.Typer(no_args_is_help=True, help="Weights & Biases, as a view of the records.")
app.add_typer(pretrain_app, name="pretrain")
app.add_typer(track_app, name="track")

ParamsFile = Annotated[
    Path, typer.Option("--params", help="The study as data.", envvar="TWF_PARAMS")
]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="auto: a GPU where there is one.")
]
ThreadsOption = Annotated[int, typer.Option(min=1, help="CPU threads.")]
SaveOption = Annotated[
    float, typer.Option(min=0, envvar="TWF_SAVE_EVERY", help="Seconds between saved states.")
]
ExecutionOption = Annotated[
    Execution,
    typer.Option(envvar="TWF_EXECUTION", help="Of training steps; captured is for a GPU alone."),
]
DeterministicOption = Annotated[
    bool,
    typer.Option(
        "--deterministic", envvar="TWF_DETERMINISTIC", help="The same bits on a GPU too; slower."
    ),
]
AttemptOption = Annotated[
    # Snakemake's, which would try a user's mistake again; 0 by hand
    int, typer.Option(min=0, hidden=True)
]
ArchiveArgument = Annotated[
    str, typer.Argument(help="An archive, as `twf data list` names it, for example cifar10.")
]
StudyArgument = Annotated[str, typer.Argument(help="A study of params.yaml, for example demo.")]
DefaultStudyArgument = Annotated[
    str | None, typer.Argument(help="A study of params.yaml; its default where none.")
]


def main() -> None:
    """Run the command line. A user's mistake prints its message alone and exits with 2."""
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


@app.command()
def plan(
    study: DefaultStudyArgument = None,
    params: ParamsFile = files.PARAMS,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    todo: Annotated[
        bool, typer.Option("--todo", help="The names of the runs that are not done, and no more.")
    ] = False,
    forecast: Annotated[
        bool,
        typer.Option("--forecast", help="How long what remains takes here, and what it needs."),
    ] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
) -> None:
    """List the runs of a study, and what remains to be done; with `--forecast`, how long it takes.

    `done`: a record with these parameters is there. `stale`: its record has other parameters.
    `to do`: no record. Next: `snakemake --cores all results/STUDY/report.html` does what remains.

    A forecast goes by the records of like runs on this device, else by steps that it times now, on
    random images: no data need be there. `--device` and `--threads` are for it alone.
    """
    from twf import planning

    loaded = parameters.load(params)
    planned = expand(loaded, study or loaded.study)
    status = planning.status(loaded, planned)
    if todo:
        for name, entry in status["runs"].items():
            if entry["status"] != "done":
                print(name)
        return
    if forecast:
        from twf import forecast as forecasting

        kind = machine.kind(device)
        status["forecast"] = forecasting.forecast(loaded, planned, status, kind, threads)
    if as_json:
        print(json.dumps(status, indent=2))
        return
    planning.show(status)
    if forecast:
        forecasting.show(status["forecast"])


@data_app.command("list")
def data_list() -> None:
    """List the official archives, and which are there, by their sizes.

    Next: `twf data show NAME` has licence and citation, `twf data fetch NAME` fetches one.
    """
    from twf.data import listing

    listing.show_all()


@data_app.command("show")
def data_show(name: ArchiveArgument) -> None:
    """Show all that is known of an archive: files, checksums, addresses, licence, citation.

    Next: `twf data fetch NAME`.
    """
    from twf.data import listing

    listing.show(name)


@data_app.command("fetch")
def data_fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Archives, as `twf data list` names them.")
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="A study of params.yaml: all archives that it needs.")
    ] = None,
    params: ParamsFile = files.PARAMS,
) -> None:
    """Fetch official archives, and check them: archives/NAME. Next: `twf data prepare`.

    Stopped and started again, it goes on from what came so far. Where jobs run without network,
    call it on the login node. `TWF_MIRROR` names a folder or an address to ask first.
    """
    from twf.data import registry
    from twf.data.fetch import fetch

    wanted = list(names or [])
    if study is not None:
        loaded = parameters.load(params)
        wanted += registry.needed(loaded, expand(loaded, study))
    elif not wanted:
        raise UserError("say which archives, or --study STUDY; `twf data list` names them")
    entries = {name: registry.entry(name) for name in wanted}
    for name, entry in entries.items():
        fetch(name, entry)


@data_app.command("prepare")
def data_prepare(
    name: Annotated[str, typer.Argument(help="A data set of params.yaml, for example digits.")],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Make the arrays of a data set: data/NAME.safetensors. Next: `twf pretrain train`."""
    from twf.data import prepare

    prepare(name, _dataset(params, name), files.data_file(name))


@data_app.command("import")
def data_import(
    name: Annotated[str, typer.Argument(help="A data set of params.yaml, for example cifar10.")],
    file: Annotated[
        Path,
        typer.Argument(help="A .npz (x_train, y_train, x_test, y_test), or a folder of folders."),
    ],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Take a published data set from a file of yours: data/NAME.safetensors.

    The images are checked to be the official ones. Next: `twf pretrain train`.
    """
    from twf.data import import_data

    import_data(name, _dataset(params, name), file)


@pretrain_app.command("train")
def pretrain_train(
    source: Annotated[str, typer.Argument(help="A source of params.yaml, for example letters.")],
    params: ParamsFile = files.PARAMS,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    save_every: SaveOption = 300.0,
    execution: ExecutionOption = "plain",
    deterministic: DeterministicOption = False,
    attempt: AttemptOption = 0,
) -> None:
    """Train a network on a source, or take the weights it names: checkpoints/SOURCE.safetensors.

    Needs the source's data (`twf data prepare`). Stopped or killed, it goes on from its last saved
    state when it is called again. Next: `twf run`.
    """
    if attempt:
        machine.stop_with_parent()
    from twf.training.pretraining import pretrain

    loaded = parameters.load(params)
    with resumable("pretrain", source, attempt), watched():
        on = device_for(device, threads, loaded.gpu_slots, deterministic)
        pretrain(loaded, source, on, save_every, execution)


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

    loaded = parameters.load(params)
    with watched():
        import_weights(loaded, source, file, device_for(device, threads, loaded.gpu_slots))


@pretrain_app.command("export")
def pretrain_export(
    source: Annotated[str, typer.Argument(help="A source of params.yaml, for example cifar100.")],
    file: Annotated[Path, typer.Argument(help="Where to write it: a name in .safetensors.")],
    params: ParamsFile = files.PARAMS,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
) -> None:
    """Write a source's checkpoint in half precision, to be shared: half the bytes.

    Next: `twf pretrain import SOURCE FILE`, there and here, so that all runs start from the same.
    """
    from twf.training.pretraining import export_weights

    loaded = parameters.load(params)
    with watched():
        export_weights(loaded, source, file, device_for(device, threads, loaded.gpu_slots))


@app.command()
def run(
    study: StudyArgument,
    run: Annotated[str, typer.Argument(help="A run's identifier, as `twf plan STUDY` lists them.")],
    params: ParamsFile = files.PARAMS,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    save_every: SaveOption = 300.0,
    execution: ExecutionOption = "plain",
    deterministic: DeterministicOption = False,
    attempt: AttemptOption = 0,
) -> None:
    """Do one continual-learning run, and write its record: results/STUDY/runs/RUN.parquet.

    Needs the benchmark's data and the source's checkpoint. A run that was stopped or killed goes on
    from its last saved state when it is called again; SIGTERM and Ctrl-C save before they end it.
    Next: `twf collect`.
    """
    if attempt:
        machine.stop_with_parent()
    if device != "cuda" and (status := warm.hand_over()) is not None:
        raise typer.Exit(status)
    from twf.training.run import execute

    loaded = parameters.load(params)
    planned = expand(loaded, study)
    if run not in planned.runs:
        raise UserError(f"study {study} has no run {run!r}; `twf plan {study}` lists its runs")
    with resumable(study, run, attempt), watched():
        on = device_for(device, threads, loaded.gpu_slots, deterministic)
        execute(loaded, planned.runs[run], on, save_every, execution)


@app.command()
def collect(
    study: StudyArgument,
    params: ParamsFile = files.PARAMS,
    partial: Annotated[
        bool, typer.Option("--partial", help="Those that are there, while the study runs.")
    ] = False,
) -> None:
    """Put all records of a study into results/STUDY/runs.parquet. Next: `twf table`."""
    from twf.results import record

    paths = [files.record_file(study, run) for run in _plan(params, study).runs]
    if not partial:
        record.collect(paths, files.runs_file(study))
        return
    holes = record.collect_partial(paths, files.runs_file(study))
    unreadable = [reason for reason in holes.values() if reason]
    print(
        f"{len(paths) - len(holes)} of {len(paths)} records; "
        f"{len(holes) - len(unreadable)} missing, {len(unreadable)} unreadable"
    )
    for reason in unreadable:
        print(f"unreadable: {reason}", file=sys.stderr)


@app.command()
def table(
    study: StudyArgument,
    table: Annotated[
        str | None,
        typer.Argument(help="EXPERIMENT.BENCHMARK, like main.split-digits; all where none."),
    ] = None,
    params: ParamsFile = files.PARAMS,
) -> None:
    """Make a study's tables, as Parquet, CSV, Markdown and LaTeX. Next: `twf compare`."""
    from twf.results import tables

    planned = _plan(params, study)
    if table not in (None, *planned.tables):
        known = ", ".join(planned.tables)
        raise UserError(f"study {study} has no table {table!r}; there is {known}")
    for name in planned.tables if table is None else [table]:
        tables.write(planned, name)


@app.command()
def compare(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Hold the paper's numbers and claims against a study's: verdicts, commands, GPU hours.

    Makes `comparison` and `claims` in results/STUDY/tables/, as Parquet, CSV and Markdown. Next:
    `twf figures`.
    """
    from twf.results import claim_evaluation, comparison

    loaded = parameters.load(params)
    planned = expand(loaded, study)
    comparison.write(loaded, planned)
    claim_evaluation.write(planned)


@app.command()
def search(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Say what a study's searches for hyperparameters found: tables/trials.csv, winners.md.

    Another study takes results/STUDY/tables/winners.yaml as its `winners`. Next: `twf report`.
    """
    from twf.results import search

    planned = _plan(params, study)
    if not planned.search:
        raise UserError(f"study {study} has no experiment with 'search' in {params}")
    search.write(planned)


@app.command()
def metrics(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Make the means of a study's cells, for DVC: results/STUDY/metrics.json.

    Next: `twf figures`; `dvc metrics diff` compares them with the last commit's.
    """
    from twf.results import metrics

    metrics.write(_plan(params, study))


@app.command()
def figures(
    study: StudyArgument, params: ParamsFile = files.PARAMS, threads: ThreadsOption = 1
) -> None:
    """Make the figures of a study, as SVG, PNG and CSV: results/STUDY/figures/.

    Of an incomplete study, what is there; a figure without any data is named and not written. Next:
    `twf describe`.
    """
    from twf.results import figures

    for name in figures.write(_plan(params, study), threads):
        print(f"not written, as it has no data yet: {name}")


@app.command()
def describe(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Write a study's reproducibility statement and the model cards of its networks, as Markdown.

    Makes results/STUDY/reproducibility.md and results/STUDY/model-cards/. Next: `twf report`.
    """
    from twf.results import statement

    loaded = parameters.load(params)
    statement.write(loaded, expand(loaded, study))


@app.command()
def report(
    study: StudyArgument,
    params: ParamsFile = files.PARAMS,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="First make all that it shows, of the records there are."),
    ] = False,
) -> None:
    """Make the report of a study, one HTML file to open or send: results/STUDY/report.html.

    With `--partial` it needs no more than records, whatever is missing: while a study runs, or of
    records from elsewhere, without their data.
    """
    from twf.results import report

    planned = _plan(params, study)
    if partial:
        collect(study, params, partial=True)
        table(study, None, params)
        compare(study, params)
        if planned.search:
            search(study, params)
        metrics(study, params)
        figures(study, params, machine.cores())
        describe(study, params)
    report.write(planned)


@app.command()
def pull(study: DefaultStudyArgument = None) -> None:
    """Bring a study's data, checkpoints and results from DVC's default remote, and settle them.

    Then neither `snakemake` nor `dvc repro` has anything to do. Stopped, it goes on when it is
    called again. docs/remotes.md has the set-up of a remote.
    """
    from twf import sharing

    loaded = parameters.load(files.PARAMS)  # the engines' own
    sharing.pull(loaded, study or loaded.study)


@app.command()
def settle(study: DefaultStudyArgument = None) -> None:
    """After `dvc checkout`: have Snakemake take a study's files as up to date, where they are.

    Only where all contents are what dvc.lock says and all records are the plan's; else it says
    what differs.
    """
    from twf import sharing

    loaded = parameters.load(files.PARAMS)  # the engines' own
    sharing.settle(loaded, study or loaded.study)


@track_app.command("sync")
def track_sync(
    study: StudyArgument,
    params: ParamsFile = files.PARAMS,
    mode: Annotated[
        Literal["auto", "online", "offline"], typer.Option(help="auto: online where a key is.")
    ] = "auto",
) -> None:
    """Tell Weights & Biases of the runs of a study that are done, from their records.

    A run that it has already, because it was tracked or synced before, is left alone. Offline, they
    go to `wandb/`; next: `wandb sync` there, with a key and the network.
    """
    from twf.tracking import view
    from twf.tracking.sync import sync

    loaded = parameters.load(params)
    records = [files.record_file(study, run) for run in expand(loaded, study).runs]
    done = sync(loaded.tracking, study, records, mode)
    where = view.project(loaded.tracking, study) if done.mode == "online" else "wandb/"
    print(f"to {where}: {len(done.sent)} sent, {len(done.skipped)} there already", end="")
    print(f", {len(done.failed)} failed" if done.failed else "")
    for run, reason in done.failed.items():
        print(f"failed: {run}: {reason}", file=sys.stderr)
    if done.failed:
        raise typer.Exit(1)


@app.command()
def doctor(
    study: Annotated[
        str | None, typer.Argument(help="The study that there is to be room for; or the default.")
    ] = None,
    params: ParamsFile = files.PARAMS,
) -> None:
    """Say what is wrong with the set-up, and how to mend it; exit with 1 where something is.

    A line for each check, which is ok, a warning or wrong: packages, driver and GPUs, the project's
    folder, disk, clock, Snakemake's lock, DVC, tracking, left-over states.
    """
    from twf import doctor as examining

    loaded = parameters.load(params)
    name = study or loaded.study
    loaded.named_study(name)
    if not examining.show(examining.examine(loaded, name)):
        raise typer.Exit(1)


@app.command()
def clean(
    study: Annotated[
        str | None, typer.Argument(help="One study; all, and what none has any more, where none.")
    ] = None,
    params: ParamsFile = files.PARAMS,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="One of those below; may be repeated. All but archives where none."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it.")] = False,
) -> None:
    """Say what is left over and how many bytes that is; with `--yes`, remove it.

    `records` of runs that no study plans any more; saved `states` of what is done or no longer
    planned; `partials` of killed processes; `logs`; `wandb` runs that `wandb sync` has sent;
    official `archives` from which all is made, only where this kind is named. Data, checkpoints
    and the records of planned runs stay.
    """
    from twf import clean as cleaning

    found = cleaning.find(parameters.load(params), study, kind or ())
    if yes:
        cleaning.remove(found)
    cleaning.show(found, removed=yes)


@app.command()
def schema(
    output: Annotated[Path, typer.Argument(help="Where to write it.")] = files.SCHEMA,
) -> None:
    """Write the JSON schema of params.yaml, after a change of the types in twf.params."""
    with files.atomic(output) as partial:
        partial.write_text(parameters.schema())


def _dataset(params: Path, name: str) -> Dataset:
    datasets = parameters.load(params).datasets
    if name not in datasets:
        raise UserError(f"no data set {name!r} in {params}; there is {', '.join(datasets)}")
    return datasets[name]


@contextlib.contextmanager
def resumable(study: str, name: str, attempt: int) -> Iterator[None]:
    """Say so where work was stopped and saved, and do not repeat what only a user can mend.

    Snakemake tries a failed job again, whatever the reason; a later attempt ends with the message
    of the first where that was a mistake. What a GPU refused is tried again: on another one.
    """
    from twf.training.resume import STATUS, Stopped

    refused = files.state_file(study, name).with_name("refused.txt")
    if attempt > 1 and refused.exists():
        raise UserError(f"{refused.read_text()} (not tried again)")
    with files.writing(refused):
        refused.unlink(missing_ok=True)
    try:
        yield
    except Stopped:
        print("stopped and saved: the same command goes on from here", file=sys.stderr)
        raise typer.Exit(STATUS) from None
    except GpuError:
        raise
    except UserError as error:
        with contextlib.suppress(OSError):  # that a disk is full may be the mistake
            refused.parent.mkdir(parents=True, exist_ok=True)
            refused.write_text(str(error))
        raise


def _plan(params: Path, study: str) -> Plan:
    loaded: Params = parameters.load(params)
    return expand(loaded, study)
