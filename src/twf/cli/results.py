"""From records to the report: what tables, figures and texts are made by."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from twf import files
from twf.cli.base import ParamsFile, StudyArgument, ThreadsOption, app, plan_of
from twf.errors import UserError
from twf.gpus import cpu
from twf.study import expand, reading


@app.command()
def collect(
    study: StudyArgument,
    params: ParamsFile = files.PARAMS,
    partial: Annotated[
        bool, typer.Option("--partial", help="Those that are there, while the study runs.")
    ] = False,
) -> None:
    """Put all records of a study into results/STUDY/runs.parquet. Next: `twf table`.

    Without `--partial`, each must be there, and as planned.
    """
    from twf.results import record, status

    planned = plan_of(params, study)
    paths = [files.record_file(study, run) for run in planned.runs]
    if not partial:
        status.require_done(planned)
        record.collect(paths, files.runs_file(study))
        return
    left_out = record.collect_partial(paths, files.runs_file(study))
    unreadable = [reason for reason in left_out.values() if reason]
    print(
        f"{len(paths) - len(left_out)} of {len(paths)} records; "
        f"{len(left_out) - len(unreadable)} missing, {len(unreadable)} unreadable"
    )
    for reason in unreadable:
        print(f"unreadable: {reason}", file=sys.stderr)


@app.command()
def table(
    study: StudyArgument,
    table: Annotated[
        str | None,
        typer.Argument(help="EXPERIMENT.BENCHMARK, like main.split-digits. Default: all of them."),
    ] = None,
    params: ParamsFile = files.PARAMS,
) -> None:
    """Make a study's tables, as Parquet, CSV, Markdown and LaTeX. Next: `twf compare`.

    One table reads the records of its own runs, as far as they are there; all are made of what
    `twf collect` has collected.
    """
    from twf.results import tables
    from twf.results.runs import Runs

    planned = plan_of(params, study)
    if table is not None:
        one = planned.named_table(table)
        tables.write(Runs.of_records(planned, planned.runs_of(one)), one)
        return
    runs = Runs.collected(planned)
    for each in planned.tables.values():
        tables.write(runs, each)


@app.command()
def compare(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Hold the paper's numbers, claims and gains against a study's: verdicts, commands, GPU hours.

    Makes `comparison`, `claims` and `gains` in results/STUDY/tables/, as Parquet, CSV and Markdown.
    Next: `twf figures`.
    """
    from twf.results.paper import claim_evaluation, comparison, gains
    from twf.results.runs import Runs

    loaded = reading.load(params)
    runs = Runs.collected(expand(loaded, study))
    comparison.write(loaded, runs)
    claim_evaluation.write(runs)
    gains.write(runs)


@app.command()
def search(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Say what a study's searches for hyperparameters found: every trial, and the best.

    It reads the records of the trials, as far as they are there.

    Another study takes results/STUDY/tables/best-hyperparameters.yaml as its
    `best_hyperparameters`. Next: `twf report`.
    """
    from twf.results import search
    from twf.results.runs import Runs

    planned = plan_of(params, study)
    if not planned.search:
        raise UserError(f"study {study} has no experiment with 'search' in {params}")
    search.write(Runs.of_records(planned, planned.runs_of_searches()))


@app.command()
def metrics(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Make the means of a study's cells, for DVC: results/STUDY/metrics.json.

    Next: `twf figures`; `dvc metrics diff` compares them with the last commit's.
    """
    from twf.results import metrics
    from twf.results.runs import Runs

    metrics.write(Runs.collected(plan_of(params, study)))


@app.command()
def figures(
    study: StudyArgument, params: ParamsFile = files.PARAMS, threads: ThreadsOption = 1
) -> None:
    """Make the figures of a study, as SVG, PNG and CSV: results/STUDY/figures/.

    Of an incomplete study, what is there; a figure without any data is not written. Next:
    `twf describe`.
    """
    from twf.results import figures

    if missing := figures.write(plan_of(params, study), threads):
        print(f"without data yet, not written: {len(missing)} figures, as {missing[0]}")


@app.command()
def describe(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Write a study's reproducibility statement and the model cards of its networks, as Markdown.

    Makes results/STUDY/reproducibility.md and results/STUDY/model-cards/. Next: `twf report`.
    """
    from twf.results.documents import statement
    from twf.results.runs import Runs

    loaded = reading.load(params)
    statement.write(loaded, Runs.collected(expand(loaded, study)))


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
    from twf.results import search
    from twf.results.documents import report
    from twf.results.runs import Runs

    loaded = reading.load(params)
    planned = expand(loaded, study)
    if partial:
        collect(study, params, partial=True)
        table(study, None, params)
        compare(study, params)
        if planned.search:
            search.write(Runs.collected(planned))
        metrics(study, params)
        figures(study, params, cpu.cores())
        describe(study, params)
    report.write(loaded, Runs.collected(planned))
    print(f"the report: {files.report_file(study)}")
