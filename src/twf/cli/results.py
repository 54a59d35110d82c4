"""From records to the report: what tables, figures and texts are made by."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twf import files
from twf.cli.base import ParamsFile, StudyArgument, app, plan_of
from twf.errors import UserError, note
from twf.study import Plan, expand, reading
from twf.study.params import Params

if TYPE_CHECKING:
    from twf.results.frame import Results


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
    if partial:
        _collect_partial(planned)
        return
    made_by = status.require_done(planned)
    paths = [files.record_file(study, run) for run in planned.runs]
    record.collect(paths, files.runs_file(study), made_by)


def _collect_partial(planned: Plan) -> Results:
    """Collect the records that are there, and say how many."""
    from twf.results import record
    from twf.results.frame import Results

    paths = [files.record_file(planned.study, run) for run in planned.runs]
    collected = files.runs_file(planned.study)
    left_out = record.collect_partial(paths, collected)
    results = Results.collected(planned)
    unreadable = [reason for reason in left_out.values() if reason]
    print(
        f"{len(paths) - len(left_out)} of {len(paths)} records, "
        f"{(results.runs['status'] == 'stale').sum()} of them stale; "
        f"{len(left_out) - len(unreadable)} missing, {len(unreadable)} unreadable"
    )
    for reason in unreadable:
        print(f"unreadable: {reason}", file=sys.stderr)
    return results


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
    from twf.results import cells
    from twf.results.frame import Results

    planned = plan_of(params, study)
    if table is None:
        cells.write(Results.collected(planned), planned.tables.values())
        return
    one = planned.named_table(table)
    cells.write(Results.of_records(planned, planned.runs_of(one)), [one])


@app.command()
def compare(
    study: StudyArgument,
    new: Annotated[
        str | None, typer.Argument(help="A method, or METHOD.VARIANT, to compare alone.")
    ] = None,
    baseline: Annotated[str | None, typer.Argument(help="What it is compared with.")] = None,
    params: ParamsFile = files.PARAMS,
) -> None:
    """Make all tables of a study, and hold the paper's numbers, claims and gains against them.

    With NEW and BASELINE, only print their difference with its interval, of the records so far:
    `twf compare demo er-smooth er`.

    Makes what `twf table` and `twf search` make; `comparison`, `order`, `claims` and `gains` in
    results/STUDY/tables/, and results/STUDY/metrics.json, which `dvc metrics diff` compares with
    the last commit's, from the collected records. Next: `twf figures`.
    """
    from twf.results.frame import Results

    loaded = reading.load(params)
    planned = expand(loaded, study)
    if new is None:
        _write_tables(loaded, Results.collected(planned))
        return
    if baseline is None:
        raise UserError(f"compare {new} with what? twf compare {study} {new} BASELINE")
    from twf.results import difference

    for line in difference.lines(Results.of_records(planned, planned.runs), new, baseline):
        print(line)


def _write_tables(params: Params, results: Results) -> None:
    """Write a study's tables, what was searched, and the comparison with the paper."""
    from twf.results import cells
    from twf.results import search as searching

    cells.write(results, results.plan.tables.values())
    if results.plan.search:
        searching.write(results)
    write_compared(params, results)


def write_compared(params: Params, results: Results) -> None:
    """Write the comparison, of records and tables that are there."""
    from twf.results import cells, dvc_metrics, search
    from twf.results.paper import claim_tests, comparison, gains

    written, trials = cells.of_results(results), search.read(results.plan)
    comparison.write(params, results)
    claim_tests.write(results)
    gains.write(results, written)
    dvc_metrics.write(results.plan, written, trials)


@app.command()
def search(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Say what a study's searches for hyperparameters found: every trial, and the best.

    It reads the records of the trials, as far as they are there.

    Another study takes results/STUDY/tables/best-hyperparameters.yaml as its
    `best_hyperparameters`. Next: `twf compare`.
    """
    from twf.results import search
    from twf.results.frame import Results

    planned = plan_of(params, study)
    if not planned.search:
        raise UserError(f"study {study} has no experiment with 'search' in {params}")
    search.write(Results.of_records(planned, planned.runs_of_searches()))


@app.command()
def figures(study: StudyArgument, params: ParamsFile = files.PARAMS) -> None:
    """Make the figures of a study, as SVG and CSV: results/STUDY/figures/.

    Of an incomplete study, what is there; a figure without any data is not written. Next:
    `twf report`.
    """
    from twf.results.frame import Results

    _figures(Results.collected(plan_of(params, study)))


def _figures(results: Results) -> None:
    from twf.results import figures

    if missing := figures.write(results):
        print(f"without data yet, not written: {len(missing)} figures, as {missing[0]}")


@app.command()
def report(
    study: StudyArgument,
    params: ParamsFile = files.PARAMS,
    partial: Annotated[
        bool, typer.Option("--partial", help="Of the records that are there, collected first.")
    ] = False,
) -> None:
    """Make the report of a study, one HTML file to open or send: results/STUDY/report.html.

    And all that it shows, as `twf compare` and `twf figures`; and its reproducibility statement as
    text: results/STUDY/reproducibility.md. With `--partial` it needs no more than records, whatever
    is missing: while a study runs, or of records from elsewhere, without their data.
    """
    from twf.results import report
    from twf.results.frame import Results

    loaded = reading.load(params)
    planned = expand(loaded, study)
    results = _collect_partial(planned) if partial else Results.collected(planned)
    note(f"{study}: tables, and comparison with the paper")
    _write_tables(loaded, results)
    _figures(results)
    note(f"{study}: the report")
    report.write(loaded, results)
    print(f"the report: {files.report_file(study)}")


@app.command()
def findings(
    fill: Annotated[
        bool, typer.Option("--pages", help="Write the numbers into README and docs too.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only say which pages differ from the evidence.")
    ] = False,
) -> None:
    """Make the findings' estimates and figures in docs/ from results/evidence: no data, no runs."""
    from twf.results import pages as made

    if check or fill:
        differed = made.fill(check)
        if check and differed:
            raise UserError(f"`twf findings --pages` changes {', '.join(map(str, differed))}")
    if not check:
        for path in made.write():
            print(path)


evidence_app = typer.Typer(no_args_is_help=True, help="Measured records: results/evidence.")
app.add_typer(evidence_app, name="evidence")


@evidence_app.command("add")
def evidence_add(
    study: Annotated[str, typer.Argument(help="A study, or a folder of its record files.")],
) -> None:
    """Append a study's records to results/evidence/STUDY.parquet, where none ever changes."""
    from twf.results import evidence

    folder = Path(study) if "/" in study else files.record_file(study, "any").parent
    path, added = evidence.add(folder)
    print(f"{path}: {added} more; next: `twf findings --pages`")
