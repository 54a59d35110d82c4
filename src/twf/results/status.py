"""What of a study is there already, and what remains to be done."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twf import files
from twf.errors import UserError
from twf.results import record
from twf.study import Plan, Run, needed_data
from twf.study.code import LOOP, code_hash, method_module
from twf.study.params import Params
from twf.study.products import Product, Products, digest, study_digest

UNCOMMITTED = "by uncommitted code"
OTHER_CODE = "made with other code"

COLOURS = {"done": "green", "to do": "yellow", "stale": "red"}


class Recorded(NamedTuple):
    """A run's record, held to the run's plan."""

    product: Product
    remark: str  # of a run that is done: that it diverged, or by which code; else how far it is
    seconds: float  # that its record says it took

    @property
    def why(self) -> str:
        """Why the run is in its state, or a remark on its record."""
        why = self.product.why
        return why or self.remark if self.product.made else self.remark or why


def of_plan(params: Params, plan: Plan) -> dict[str, Any]:
    """Everything `twf plan` says, as plain values."""
    cells = [cell for table in plan.tables.values() for cell in table.cells]
    products = Products(params)
    data = {name: products.data(name) for name in needed_data(params, plan)}
    sources = {name: products.network(name) for name in plan.sources}
    runs = {run.id: recorded(products, run) for run in plan.runs.values()}
    return {
        "study": plan.study,
        "title": plan.title,
        "experiment": plan.experiment,
        "data": {name: of.state for name, of in data.items()},
        "sources": {name: of.state for name, of in sources.items()},
        "stale": {  # why these data and networks are
            str(of.file): of.why for of in (*data.values(), *sources.values()) if of.why
        },
        "runs": {
            run.id: run.values
            | {"digest": run.digest}
            | {"status": runs[run.id].product.state, "why": runs[run.id].why}
            for run in plan.runs.values()
        },
        "searched": len(plan.search),
        "seeds": dict(sorted(Counter(len(c.runs) for c in cells).items())),
        "tables": {
            name: [
                {"method": c.method, "buffer": c.buffer, "protocol": c.protocol, "runs": c.runs}
                for c in table.cells
            ]
            for name, table in plan.tables.items()
        },
        "targets": [str(path) for path in _targets(plan)],
    }


def _targets(plan: Plan) -> list[Path]:
    """What Snakemake is to make for all of the plan."""
    if plan.experiment is None:
        return [files.report_file(plan.study)]
    tables = [files.table_file(plan.study, table, "md") for table in plan.tables]
    return [*tables, *(files.search_files(plan.study)[-1:] if plan.search else ())]


def recorded(products: Products, run: Run) -> Recorded:
    """A run's record held to its plan: the record alone decides, whatever its time."""
    path = files.record_file(run.study, run.id)
    found = record.brief(path)
    made = None if found is None else found["plan"]
    plan = products.run_plan(run, made or {})
    product = Product(path, files.run_plan(run.study, run.id), plan, made)
    if found is None:
        return Recorded(product, ", ".join(filter(None, ["no record", saved(run, plan)])), 0.0)
    if "reason" in found:
        return Recorded(product, found["reason"], 0.0)
    code = found["provenance"].get("code", {})
    other = product.state == "done" and code.get("method_hash") != _code(run.method)
    remarks = [
        found["status"] if found["status"] == "diverged" else "",
        UNCOMMITTED * (code.get("commit") or "").endswith("+"),
        OTHER_CODE * other,
    ]
    return Recorded(product, ", ".join(filter(None, remarks)), found["seconds"] or 0.0)


def _code(method: str) -> str:
    return code_hash(LOOP, method_module(method))


def is_stale(products: Products, run: Run, row: Mapping[str, Any]) -> bool:
    """Whether a collected record is not as planned, as far as its row says.

    One of an older version says its parameters alone, by their digest.
    """
    provenance = record.provenance(row)
    made = record.plan_of(provenance)
    plan = products.run_plan(run, made)
    return made != plan if "data" in made else row["digest"] != run.digest


def saved(run: Run, plan: Mapping[str, Any]) -> str:
    """How far a run has come that was begun, by its saved state: `3/15 epochs, 40 steps saved`.

    A state of another plan is not gone on from.
    """
    header = files.header(files.state_file(run.study, run.id))
    try:
        saved = json.loads(header["__metadata__"]["state"])
        if saved["guard"]["plan"] != digest(plan):
            return "what is saved is of another plan"
        place = saved["state"]["place"]
        done = place["phase"] * run.epochs + place["epoch"]
        steps = f", {place['step']} steps" * bool(place["step"])
    except (KeyError, TypeError, ValueError):
        return ""
    return f"{done}/{run.phases * run.epochs} epochs{steps} saved"


def wanted(params: Params, plan: Plan, runs: Mapping[str, Product]) -> str | None:
    """The digest that the study's collected table and report are to carry.

    None where a record is to be made.
    """
    records = {
        name: files.sha256(of.file) if of.state == "done" else None for name, of in runs.items()
    }
    return study_digest(params, plan, records)


def require_done(plan: Plan) -> str:
    """The study's digest. Raises `UserError` where a record of a plan is missing or stale."""
    study, products = plan.study, Products(plan.params)
    runs = {run.id: recorded(products, run) for run in plan.runs.values()}
    left = [f"{of.product.file}: {of.why}" for of in runs.values() if of.product.state != "done"]
    made = wanted(plan.params, plan, {name: of.product for name, of in runs.items()})
    if left or made is None:
        raise UserError(
            f"{len(left)} of {len(runs)} runs of study {study} have no record, or a stale one, "
            f"for example {left[0]}; `twf plan {study}` lists them, `snakemake --cores all "
            f"{files.runs_file(study)}` makes them, --partial does without"
        )
    return made


def show(status: dict[str, Any], runs: bool = True, every: bool = False) -> None:
    """Print `status`; `runs` in a table, those that differ in their seed alone as one row.

    What is done, and nothing is to be said of, is counted alone, unless `every` run is asked for.
    """
    console = Console(width=None if sys.stdout.isatty() else 160)
    part = f", experiment {status['experiment']}" if status["experiment"] else ""
    console.print(f"[bold]{status['study']}[/bold]{part}: {escape(status['title'])}")
    for kind, file in (("data", files.data_file), ("sources", files.checkpoint_file)):
        parts = []
        for name, state in status[kind].items():
            why = status["stale"].get(str(file(name)))
            parts.append(f"{name} {_coloured(state)}" + (f" ({escape(why)})" if why else ""))
        console.print(f"{kind}: {', '.join(parts)}")
    shown = {
        name: run
        for name, run in status["runs"].items()
        if every or run["status"] != "done" or run["why"]
    }
    if runs and shown:
        console.print(_runs(shown))
    if runs and len(shown) < len(status["runs"]):
        console.print(f"done, and not listed (see --all): {len(status['runs']) - len(shown)}")
    counts = Counter(run["status"] for run in status["runs"].values())
    total = ", ".join(f"{count} {_coloured(state)}" for state, count in counts.items())
    cells = sum(len(cells) for cells in status["tables"].values())
    searched = f", and search for {status['searched']} cells" if status["searched"] else ""
    console.print(
        f"{len(status['runs'])} runs ({total}) fill {cells} cells of "
        f"{len(status['tables'])} table(s){searched}"
    )
    if status["seeds"]:
        counted = ", ".join(f"{n} cells with {count}" for count, n in status["seeds"].items())
        console.print(f"seeds: {counted}")
    if set(counts) != {"done"}:
        console.print(f"next: snakemake --cores all {' '.join(status['targets'])}")


def _runs(runs: dict[str, Any]) -> Table:
    """Runs by name, as a shell takes it: `split-digits.er.50.s{0,1,2}`."""
    seeds = defaultdict[tuple[str, str, str], list[str]](list)
    for name, run in runs.items():
        place, _, seed = name.rpartition(".s")  # it names method, buffer and source
        values = " ".join(f"{key}={value:g}" for key, value in run["hyperparameters"].items())
        remark = run["why"].removeprefix("no record").removeprefix(", ")
        remark = f", {escape(remark)}" if remark else ""
        seeds[place, values, _coloured(run["status"]) + remark].append(seed)
    table = Table()
    table.add_column("run", no_wrap=True)
    table.add_column("hyperparameters", overflow="fold")
    table.add_column("status", overflow="fold")
    for (place, values, state), alike in seeds.items():
        numbers = ",".join(alike)
        name = f"{place}.s{{{numbers}}}" if len(alike) > 1 else f"{place}.s{numbers}"
        table.add_row(name, values, state)
    return table


def _coloured(state: str) -> str:
    return f"[{COLOURS[state]}]{state}[/]"
