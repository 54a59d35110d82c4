"""From records to the report: what tables, figures and texts are made by."""

from pathlib import Path
from typing import Annotated

import typer

from twf import files
from twf.cli.app import NODES, PROJECT, ParamsFile, Study, app, group
from twf.errors import UserError
from twf.study import expand, reading


@app.command()
def report(
    study: Study,
    params: ParamsFile = files.PARAMS,
    partial: Annotated[bool, typer.Option("--partial", help="Of the records so far.")] = False,
) -> None:
    """Make the report of a study, one HTML file to open or send: results/STUDY/report.html.

    And all that it shows: results/STUDY/estimates.parquet, tables, figures, what searches found,
    and metrics for DVC. With `--partial`, of the records that are there, whatever is missing: while
    a study runs, or of records from elsewhere.
    """
    from twf.results import record, report
    from twf.results.frame import Results

    planned = expand(reading.load(params), study)
    if partial:
        paths = [files.record_file(study, run) for run in planned.runs]
        there = [path for path in paths if path.exists()]
        record.collect(there, files.runs_file(study))
        print(f"{len(there)} of {len(paths)} records")
    report.write_all(Results.collected(planned))
    print(f"the report: {files.report_file(study)}")


@app.command()
def compare(
    study: Study,
    new: Annotated[str, typer.Argument(help="A method, or METHOD.VARIANT.")],
    baseline: Annotated[str, typer.Argument(help="What it is compared with.")],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Print the difference of two methods or variants with its interval, of the records so far.

    NEW minus BASELINE: `twf compare demo er-smooth er`.
    """
    from twf.results import difference
    from twf.results.frame import Results

    planned = expand(reading.load(params), study)
    for line in difference.lines(Results.of_records(planned, planned.runs), new, baseline):
        print(line)


@app.command(rich_help_panel=NODES)
def collect(study: Study, params: ParamsFile = files.PARAMS) -> None:
    """Put all records of a study into results/STUDY/runs.parquet. Next: `twf report`.

    Each must be there, and as planned; `twf report STUDY --partial` collects those that are there.
    """
    from twf.results import record, status

    planned = expand(reading.load(params), study)
    made_by = status.require_done(planned)
    paths = [files.record_file(study, run) for run in planned.runs]
    record.collect(paths, files.runs_file(study), made_by)


@app.command(rich_help_panel=NODES)
def table(
    study: Study,
    table: Annotated[str, typer.Argument(help="EXPERIMENT.BENCHMARK, like main.split-digits.")],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Make one of a study's tables of the records of its runs, as far as they are there.

    As CSV, Markdown and LaTeX: results/STUDY/tables/. Next: `twf report`, which makes all.
    """
    from twf.results import estimates, tables
    from twf.results.frame import Results

    planned = expand(reading.load(params), study)
    one = planned.named_table(table)
    results = Results.of_records(planned, planned.runs_of(one))
    tables.write(results, estimates.cells(results, [one]), [one])


@app.command(rich_help_panel=NODES)
def search(study: Study, params: ParamsFile = files.PARAMS) -> None:
    """Say what a study's searches for hyperparameters found: every trial, and the best.

    It reads the records of the trials, as far as they are there. Another study takes
    results/STUDY/tables/best-hyperparameters.yaml as its `best_hyperparameters`.
    """
    from twf.results import search
    from twf.results.frame import Results

    planned = expand(reading.load(params), study)
    if not planned.search:
        raise UserError(f"study {study} has no experiment with 'search' in {params}")
    results = Results.of_records(planned, planned.runs_of_searches())
    search.write(results, search.trials(results))


@app.command(rich_help_panel=PROJECT)
def findings(
    fill: Annotated[bool, typer.Option("--pages", help="The pages' numbers too.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say which pages differ.")] = False,
) -> None:
    """Make the findings' estimates and figures in docs/ from results/evidence: no data, no runs.

    With `--pages`, the numbers in README and docs are written too.
    """
    from twf.results import pages as made

    if check or fill:
        differed = made.fill(check)
        if check and differed:
            raise UserError(f"`twf findings --pages` changes {', '.join(map(str, differed))}")
    if not check:
        print(*made.write(), sep="\n")


@group("evidence", PROJECT, "Measured records: results/evidence.").command("add")
def evidence_add(
    study: Annotated[str, typer.Argument(help="A study, or a folder of its record files.")],
) -> None:
    """Append a study's records to results/evidence/STUDY.parquet, where none ever changes."""
    from twf.results import evidence

    folder = Path(study) if "/" in study else files.record_file(study, "any").parent
    path, added = evidence.add(folder)
    print(f"{path}: {added} more; next: `twf findings --pages`")
