"""What of a study is there already, and what remains to be done."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twf import files
from twf.data import inputs
from twf.errors import UserError
from twf.results import record
from twf.study import Plan, Run, needed_data
from twf.study.params import Params

# For agreement with a number of the paper in 80 % of cases, if the true means agree and a cell's
# runs have a standard deviation of 1 point: `statistics.seeds_needed`, which would import SciPy.
SEEDS_FOR_AGREEMENT = 13

UNCOMMITTED = "by uncommitted code"

State = Literal["done", "to do", "stale", "unreadable"]
COLOURS = {"done": "green", "to do": "yellow", "stale": "red", "unreadable": "red"}


def of_plan(params: Params, plan: Plan) -> dict[str, Any]:
    """Everything `twf plan` says, as plain values."""
    cells = [cell for table in plan.tables.values() for cell in table.cells]
    data = {
        name: (files.data_file(name), inputs.data(name, params.datasets[name]))
        for name in needed_data(params, plan)
    }
    sources = {
        name: (files.checkpoint_file(name), inputs.network(params, name)) for name in plan.sources
    }
    return {
        "study": plan.study,
        "title": plan.title,
        "experiment": plan.experiment,
        "data": {name: _input_state(*of) for name, of in data.items()},
        "sources": {name: _input_state(*of) for name, of in sources.items()},
        "stale": {  # why these data and networks are
            str(path): held.why
            for path, held in (*data.values(), *sources.values())
            if held.changes
        },
        "runs": {
            run.id: run.values
            | {"digest": run.digest}
            | dict(zip(("status", "why"), run_state(params, run), strict=True))
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


def _input_state(path: Path, held: inputs.Held) -> State:
    if not path.exists():
        return "to do"
    return "stale" if held.changes else "done"


def run_state(params: Params, run: Run) -> tuple[State, str]:
    """The state of a run, and why it is in it; of a run that is done, a remark on its record.

    The remark is that it diverged, or that its code was not committed. The record alone decides,
    whoever put it there and whatever its time. It is stale where it was made with other parameters
    than the plan's, or from another checkpoint or other data than those that are there; and where
    these are stale themselves, whatever it was made from. Of a run without a record, the reason
    says how far it has come.
    """
    path = files.record_file(run.study, run.id)
    if not path.exists():
        return "to do", ", ".join(filter(None, ["no record", saved(run)]))
    try:
        (row,) = record.read(path, ["digest", "provenance", "status"]).to_pylist()
    except UserError as error:
        return "unreadable", str(error)
    written = record.provenance(row)
    if said := changes(params, run, row["digest"], written):
        before = files.replaced_file(run.study, run.id, f"{run.digest}*")  # of whatever inputs
        kept = any(before.parent.glob(before.name))
        return "stale", inputs.shortened(said) + "; a record of before is kept" * kept
    uncommitted = (written.get("code", {}).get("commit") or "").endswith("+")
    remarks = [row["status"] if row["status"] == "diverged" else "", UNCOMMITTED * uncommitted]
    return "done", ", ".join(filter(None, remarks))


def changes(params: Params, run: Run, digest: str, written: Mapping[str, Any]) -> list[str]:
    """Why a record with this digest and provenance is stale; nothing where it is not."""
    other = []
    if digest != run.digest:
        was = written.get("parameters", {})
        other = inputs.changes(was, run.values, complete=True) or ["other parameters"]
    return other + unfit_inputs(params, run, written.get("inputs", {}))


def saved(run: Run) -> str:
    """How far a run has come that was begun, by its saved state: `3/15 epochs, 40 steps saved`.

    A state of other parameters is not gone on from.
    """
    header = inputs.header(files.state_file(run.study, run.id))
    try:
        saved = json.loads(header["__metadata__"]["state"])
        if saved["guard"]["parameters"] != run.digest:
            return "what is saved has other parameters"
        place = saved["state"]["place"]
        done = place["phase"] * run.epochs + place["epoch"]
        steps = f", {place['step']} steps" * bool(place["step"])
    except (KeyError, TypeError, ValueError):
        return ""
    return f"{done}/{run.phases * run.epochs} epochs{steps} saved"


def require_done(plan: Plan) -> None:
    """Raise `UserError` where a record of a plan is missing or stale.

    A record that is as planned and older than the data is kept by Snakemake. Where the same call
    makes these data anew, of other images, the record is stale only then.
    """
    study = plan.study
    states = [
        (files.record_file(study, run.id), *run_state(plan.params, run))
        for run in plan.runs.values()
    ]
    left = [f"{path}: {why}" for path, state, why in states if state in ("to do", "stale")]
    if left:
        raise UserError(
            f"{len(left)} of {len(states)} runs of study {study} have no record, or a stale one, "
            f"for example {left[0]}; `twf plan {study}` lists them, `snakemake --cores all "
            f"{files.runs_file(study)}` makes them, --partial does without"
        )


def unfit_inputs(params: Params, run: Run, made_from: Mapping[str, str]) -> list[str]:
    """Those of a run's inputs that are there and stale, or not what its record was made from."""
    checkpoint, data = files.checkpoint_file(run.source), files.data_file(run.data)
    held = {checkpoint: inputs.network(params, run.source)}
    for name in filter(None, (run.data, run.source_data)):
        held[files.data_file(name)] = inputs.data(name, params.datasets[name])
    stale = {path: each.why for path, each in held.items() if each.changes}
    there: dict[Path, Mapping[str, str]] = {}
    if checkpoint.exists():
        there[checkpoint] = (
            {"network_sha256": inputs.tensors_sha256(checkpoint)}
            if "network_sha256" in made_from
            else {"checkpoint_sha256": inputs.sha256(checkpoint)}  # of an earlier version of twf
        )
    if data.exists():
        there[data] = inputs.header(data).get("__metadata__", {})
    if run.source_data is not None and (source := files.data_file(run.source_data)).exists():
        now = inputs.header(source).get("__metadata__", {})
        there[source] = {**there.get(source, {}), **{f"source_{k}": of for k, of in now.items()}}
    others = [
        path
        for path, now in there.items()
        if any(made_from[key] != now[key] for key in made_from.keys() & now.keys())
    ]
    said = [f"{path} is stale ({why})" for path, why in stale.items()]
    return said + [f"another {path}" for path in others if path not in stale]


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
        console.print(
            f"seeds: {counted}; a verdict on a number of the paper takes 2 at least, to find that "
            f"it agrees about {SEEDS_FOR_AGREEMENT} (docs/results.md)"
        )
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
