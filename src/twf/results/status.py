"""What of a study is there already, and what remains to be done."""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

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


class Recorded(NamedTuple):
    """A run's record, held to the run's plan."""

    product: Product
    why: str  # why it is in its state, or a remark on its record


def of_runs(plan: Plan) -> dict[str, Recorded]:
    """The record of each run of a plan, by the run's identifier."""
    products = Products(plan.params)
    return {run.id: recorded(products, run) for run in plan.runs.values()}


def recorded(products: Products, run: Run) -> Recorded:
    """A run's record compared with its plan, whatever the file's time."""
    path = files.record_file(run.study, run.id)
    brief = record.brief(path)
    made = None if brief is None else brief["plan"]
    plan = products.run_plan(run, made or {})
    product = Product(path, files.run_plan(run.study, run.id), plan, made)
    if brief is None:
        return Recorded(product, ", ".join(filter(None, ["no record", saved(run, plan)])))
    if "reason" in brief or product.why:
        return Recorded(product, brief.get("reason", product.why))
    remarks = ["diverged"] if brief["status"] == "diverged" else []
    code = code_hash(LOOP, method_module(run.method))
    if brief["provenance"].get("code", {}).get("method_hash") != code:
        remarks.append(OTHER_CODE)
    return Recorded(product, ", ".join(remarks))


def saved(run: Run, plan: Mapping[str, Any]) -> str:
    """How far a run has come that was begun, by its saved state: `3/15 epochs saved`.

    A state of another plan is not gone on from.
    """
    header = files.header(files.state_file(run.study, run.id))
    try:
        about = json.loads(header["__metadata__"]["about"])
        if about["guard"]["plan"] != digest(plan):
            return "what is saved is of another plan"
        position = about["state"]["place"]
        done = position["phase"] * run.epochs + position["epoch"]
    except (KeyError, TypeError, ValueError):
        return ""
    return f"{done}/{run.phases * run.epochs} epochs saved"


def wanted(plan: Plan, runs: Mapping[str, Product]) -> str | None:
    """The digest that the study's collected table and report are to carry.

    None where a record is to be made.
    """
    records = {
        name: files.sha256(product.file) if product.state == "done" else None
        for name, product in runs.items()
    }
    return study_digest(plan.params, plan, records)


def require_done(plan: Plan) -> str:
    """The study's digest. Raises `UserError` where a record of a plan is missing or stale."""
    study, runs = plan.study, of_runs(plan)
    left = [
        f"{each.product.file}: {each.why}" for each in runs.values() if each.product.state != "done"
    ]
    if left:
        raise UserError(
            f"{len(left)} of {len(runs)} runs of study {study} have no record, or a stale one, "
            f"for example {left[0]}; `twf plan {study}` lists them, `snakemake --cores all "
            f"{files.runs_file(study)}` makes them, and `twf report {study} --partial` does without"
        )
    return str(wanted(plan, {name: each.product for name, each in runs.items()}))


def show(plan: Plan, runs: Mapping[str, Recorded], every: bool = False) -> None:
    """Print what of a study is there; runs that differ only in their seed in one row.

    Runs that are done without a remark are only counted, unless `every` run is asked for.
    """
    console, products = Console(width=None if sys.stdout.isatty() else 160), Products(plan.params)
    console.print(f"[bold]{plan.study}[/bold]: {escape(plan.title)}")
    inputs = {"data": map(products.data, plan.data), "sources": map(products.network, plan.sources)}
    for kind, held in inputs.items():
        parts = [f"{one.file.stem} {_state(one.state, one.why)}" for one in held]
        console.print(f"{kind}: {', '.join(parts)}")
    listed = [name for name, run in runs.items() if every or run.product.state != "done" or run.why]
    if listed:
        console.print(_table(plan, {name: runs[name] for name in listed}))
    if len(listed) < len(runs):
        console.print(f"done, and not listed (see --all): {len(runs) - len(listed)}")
    counts = Counter(run.product.state for run in runs.values())
    total = ", ".join(f"{count} {_state(state)}" for state, count in counts.items())
    searched = f", and search for {len(plan.search)} cells" if plan.search else ""
    console.print(
        f"{len(runs)} runs ({total}) fill {sum(len(t.cells) for t in plan.tables.values())} cells "
        f"of {len(plan.tables)} table(s){searched}"
    )
    if set(counts) != {"done"}:
        console.print(f"next: snakemake --cores all {files.report_file(plan.study)}")


def _table(plan: Plan, runs: Mapping[str, Recorded]) -> Table:
    """Runs by name, as a shell takes it: `split-digits.er.50.s{0,1,2}`."""
    alike = defaultdict[tuple[str, str, str], list[str]](list)
    for name, run in runs.items():
        cell, _, seed = name.rpartition(".s")
        why = run.why.removeprefix("no record").removeprefix(", ")
        state = _state(run.product.state, why)
        alike[cell, plan.runs[name].hyperparameters.text, state].append(seed)
    table = Table()
    table.add_column("run", no_wrap=True)
    table.add_column("hyperparameters", overflow="fold")
    table.add_column("status", overflow="fold")
    for (cell, values, state), seeds in alike.items():
        numbers = ",".join(seeds)
        table.add_row(f"{cell}.s{numbers if len(seeds) == 1 else f'{{{numbers}}}'}", values, state)
    return table


def _state(status: str, why: str = "") -> str:
    """A state in its colour, and why."""
    return f"[{COLOURS[status]}]{status}[/]" + (f", {escape(why)}" if why else "")
