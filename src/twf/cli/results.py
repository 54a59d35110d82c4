"""From records to the report and the findings; and `twf new`, about the project."""

from pathlib import Path
from typing import Annotated

import typer

from twf import files
from twf.cli.training import NODES, PROJECT, app, group
from twf.errors import UserError
from twf.study import Plan, expand, products, reading

Study = Annotated[str, typer.Argument(help="A study, or its plan file: plans/STUDY.json.")]


def _planned(study: str) -> Plan:
    """The plan of a study of params.yaml, or of its plan file."""
    path = Path(study) if study.endswith(".json") else files.PARAMS
    if path != files.PARAMS:
        products.named("study", path)
    return expand(reading.load(path), path.stem if path != files.PARAMS else study)


@app.command()
def report(
    study: Study,
    partial: Annotated[bool, typer.Option("--partial", help="Of the records so far.")] = False,
) -> None:
    """Make the report of a study, one HTML file to open or send: results/STUDY/report.html.

    And all that it shows: results/STUDY/estimates.parquet, tables, figures, what searches found,
    and metrics for DVC. With `--partial`, of the records that are there, whatever is missing.
    """
    from twf.results import record, report
    from twf.results.frame import Results

    planned = _planned(study)
    if partial:
        paths = [files.record_file(planned.study, run) for run in planned.runs]
        existing = [path for path in paths if path.exists()]
        record.collect(existing, files.runs_file(planned.study))
        print(f"{len(existing)} of {len(paths)} records")
    report.write_all(Results(planned, record.read(files.runs_file(planned.study))))
    print(f"the report: {files.report_file(planned.study)}")


@app.command()
def compare(
    study: Study,
    new: Annotated[str, typer.Argument(help="A method, or METHOD.VARIANT.")],
    baseline: Annotated[str, typer.Argument(help="What it is compared with.")],
) -> None:
    """Print the difference of two methods or variants with its interval, of the records so far.

    NEW minus BASELINE: `twf compare demo er-smooth er`.
    """
    from twf.results import estimates
    from twf.results.frame import Results

    planned = _planned(study)
    results = Results.of_records(planned, planned.runs)
    print(*estimates.compared(results, new, baseline), sep="\n")


@app.command(rich_help_panel=NODES)
def collect(study: Study) -> None:
    """Put all records of a study into results/STUDY/runs.parquet. Next: `twf report`.

    Each must be there, and as planned; `twf report STUDY --partial` collects those that are there.
    """
    from twf.results import record, status

    planned = _planned(study)
    made_by = status.require_done(planned)
    paths = [files.record_file(planned.study, run) for run in planned.runs]
    record.collect(paths, files.runs_file(planned.study), made_by)


@app.command(rich_help_panel=NODES)
def table(
    study: Study,
    table: Annotated[str, typer.Argument(help="EXPERIMENT.BENCHMARK, like main.split-digits.")],
) -> None:
    """Make one table of a study, of the records of its runs so far: results/STUDY/tables/."""
    from twf.results import estimates, tables
    from twf.results.frame import Results

    planned = _planned(study)
    one = planned.named_table(table)
    results = Results.of_records(planned, planned.runs_of(one))
    tables.write(results, estimates.cells(results, [one]), [one])


@app.command(rich_help_panel=NODES)
def search(study: Study) -> None:
    """Write all trials of a study's searches so far, and the best, to results/STUDY/tables.

    Another study takes results/STUDY/tables/best-hyperparameters.yaml as its
    `best_hyperparameters`.
    """
    from twf.results import search
    from twf.results.frame import Results

    planned = _planned(study)
    if not planned.search:
        raise UserError(f"study {planned.study} has no experiment with 'search'")
    results = Results.of_records(planned, planned.runs_of_searches())
    search.write(results, search.trials(results))


@app.command(rich_help_panel=PROJECT)
def findings() -> None:
    """Make the findings' numbers and figures, in README and docs/, from results/evidence alone."""
    from twf.results import pages
    from twf.results.findings import Findings

    found = Findings()
    pages.fill(found)
    print(*pages.write(found), sep="\n")


@group("evidence", PROJECT, "Measured records: results/evidence.").command("add")
def evidence_add(
    study: Annotated[str, typer.Argument(help="A study, or a folder of its record files.")],
) -> None:
    """Append a study's records to results/evidence/STUDY.parquet, where none ever changes."""
    from twf.results import evidence

    folder = Path(study) if "/" in study else files.record_file(study, "any").parent
    path, added = evidence.add(folder)
    print(f"{path}: {added} more; next: `twf findings`")


@group("new", PROJECT, "Your own method, begun as a copy of another.").command("method")
def new_method(
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits, hyphens.")],
    like: Annotated[str, typer.Option(help="The method that it is copied from.")],
    title: Annotated[str | None, typer.Option(help="What tables call it.")] = None,
) -> None:
    """Make your own method: its loss, hyperparameters, values, and an experiment of the demo.

    It trains as the copied method does until you change its loss. Next: docs/add-a-method.md.
    """
    from twf.upkeep import method

    print(*method.new(name, like, title), sep="\n")
    print(f"next: change the loss in {method.LOSSES / name.replace('-', '_')}.py; then")
    print(f"  snakemake --cores all results/demo/tables/{name}.split-digits.md")
    print(f"  twf compare demo {name} {like}      # {name} minus {like}, with an interval")
