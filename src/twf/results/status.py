"""What of a study is there already, and what remains to be done."""

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twf import files
from twf.errors import UserError
from twf.results import record
from twf.study import Plan, Run
from twf.study.code import LOOP, code_hash, method_module
from twf.study.products import Product, Products, digest, study_digest

OTHER_CODE = "made with other code"

COLOURS = {"done": "green", "to do": "yellow", "stale": "red"}


def of_runs(plan: Plan) -> dict[str, Product]:
    """The record of each run of a plan, by the run's identifier."""
    products = Products(plan.params)
    return {run.id: recorded(products, run) for run in plan.runs.values()}


def recorded(products: Products, run: Run) -> Product:
    """A run's record compared with its plan, whatever the file's time."""
    path, plan_file = files.record_file(run.study, run.id), files.run_plan(run.study, run.id)
    made, remarks = None, list[str]()
    if path.exists():
        try:
            # all columns, so that damage anywhere in the file is found by their checksums
            (row,) = record.read(path).select(["provenance", "status"]).to_pylist()
            about = record.provenance(row)
            made = record.plan_of(about, products.params.studies[run.study].follow_code)
            if row["status"] == "diverged":
                remarks.append("diverged")
            code = code_hash(LOOP, method_module(run.method))
            if about.get("code", {}).get("method_hash") != code:
                remarks.append(OTHER_CODE)
        except (UserError, ValueError) as error:
            made, remarks = {}, [str(error)]
    plan = products.run_plan(run, made or {})
    remark = _saved(run, plan) if made is None else ", ".join(remarks)
    return Product(path, plan_file, plan, made, remark)


def _saved(run: Run, plan: Mapping[str, Any]) -> str:
    """How far a run was saved that goes on by this plan: `3/15 epochs saved`; else empty."""
    about = files.about(files.state_file(run.study, run.id))
    try:
        position = about["state"]["place"]
        done = position["phase"] * run.epochs + position["epoch"]
        of_plan = about["guard"]["plan"] == digest(plan)
    except (KeyError, TypeError):
        return ""
    return f"{done}/{run.phases * run.epochs} epochs saved" if of_plan else ""


def wanted(plan: Plan, runs: Mapping[str, Product]) -> str | None:
    """The digest that the study's collected table and report are to carry.

    None where a record is to be made.
    """
    if any(run.state != "done" for run in runs.values()):
        return None
    return study_digest(plan, {name: files.sha256(run.file) for name, run in runs.items()})


def require_done(plan: Plan) -> str:
    """The study's digest. Raises `UserError` where a record of a plan is missing or stale."""
    study, runs = plan.study, of_runs(plan)
    left = [f"{each.file}: {each.why or 'to do'}" for each in runs.values() if each.state != "done"]
    if left:
        raise UserError(
            f"{len(left)} of {len(runs)} runs of study {study} have no record, or a stale one, "
            f"for example {left[0]}; `twf plan {study}` lists them, `snakemake --cores all "
            f"{files.runs_file(study)}` makes them, and `twf report {study} --partial` does without"
        )
    return str(wanted(plan, runs))


def show(plan: Plan, runs: Mapping[str, Product], every: bool = False) -> None:
    """Print what of a study is there; runs that differ only in their seed in one row.

    Runs that are done without a remark are only counted, unless `every` run is asked for.
    """
    console, products = Console(width=None if sys.stdout.isatty() else 160), Products(plan.params)
    console.print(f"[bold]{plan.study}[/bold]: {escape(plan.title)}")
    inputs = {"data": map(products.data, plan.data), "sources": map(products.network, plan.sources)}
    for kind, held in inputs.items():
        console.print(f"{kind}: {', '.join(f'{one.file.stem} {_state(one)}' for one in held)}")
    alike = defaultdict[tuple[str, str, str], list[str]](list)  # seeds
    for name, run in runs.items():
        if every or run.state != "done" or run.why:
            cell, _, seed = name.rpartition(".s")
            alike[cell, plan.runs[name].hyperparameters.text, _state(run)].append(seed)
    table = Table("run", "hyperparameters", "status")
    table.columns[0].no_wrap = True
    for (cell, values, state), seeds in alike.items():  # by the name that a shell takes
        numbers = seeds[0] if len(seeds) == 1 else f"{{{','.join(seeds)}}}"
        table.add_row(f"{cell}.s{numbers}", values, state)
    if alike:
        console.print(table)
    if unlisted := len(runs) - sum(map(len, alike.values())):
        console.print(f"done, and not listed (see --all): {unlisted}")
    counts = Counter(run.state for run in runs.values())
    total = ", ".join(f"{count} {state}" for state, count in counts.items())
    searched = f", and search for {len(plan.search)} cells" if plan.search else ""
    cells = sum(len(table.cells) for table in plan.tables.values())
    console.print(
        f"{len(runs)} runs ({total}) fill {cells} cells of {len(plan.tables)} table(s){searched}"
    )
    if set(counts) != {"done"}:
        console.print(f"next: snakemake --cores all {files.report_file(plan.study)}")


def _state(product: Product) -> str:
    """Its state in colour, and why."""
    why = f", {escape(product.why)}" if product.why else ""
    return f"[{COLOURS[product.state]}]{product.state}[/]{why}"
