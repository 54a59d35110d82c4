"""What of a study is there already, and what remains to be done."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twf import files
from twf.data import preflight
from twf.errors import UserError
from twf.results import record
from twf.study import Plan, Run, needed_data
from twf.study.params import Params

# For agreement with a number of the paper in 80 % of cases, if the true means agree and a cell's
# runs have a standard deviation of 1 point: `statistics.seeds_needed`, which would import SciPy.
SEEDS_FOR_AGREEMENT = 13

SHOWN = 4  # changes that the reason of a stale run names
UNCOMMITTED = "uncommitted changes"

State = Literal["done", "to do", "stale", "unreadable"]
COLOURS = {"done": "green", "to do": "yellow", "stale": "red", "unreadable": "red"}


def of_plan(params: Params, plan: Plan) -> dict[str, Any]:
    """Everything `twf plan` says, as plain values."""
    cells = [cell for table in plan.tables.values() for cell in table.cells]
    return {
        "study": plan.study,
        "title": plan.title,
        "experiment": plan.experiment,
        "data": {name: _exists(files.data_file(name)) for name in needed_data(params, plan)},
        "sources": {name: _exists(files.checkpoint_file(name)) for name in plan.sources},
        "runs": {
            run.id: run.values
            | {"digest": run.digest}
            | dict(zip(("status", "why"), of_run(run), strict=True))
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


def _exists(path: Path) -> str:
    return "done" if path.exists() else "to do"


def of_run(run: Run) -> tuple[State, str]:
    """Whether a run is done, and why it is not; of one that is, whether no commit has what made it.

    Its record alone decides, whoever put it there and whatever its time. It is stale where it was
    made with other parameters than the plan's, or from another checkpoint or other data than those
    that are there.
    """
    path = files.record_file(run.study, run.id)
    if not path.exists():
        return "to do", "no record"
    try:
        (row,) = record.read(path, ["digest", "provenance"]).to_pylist()
    except UserError as error:
        return "unreadable", str(error)
    written = record.provenance(row)
    changes = []
    if row["digest"] != run.digest:
        changes = _changes(written.get("parameters", {}), run.values) or ["other parameters"]
    if made_from := written.get("inputs"):
        changes += [f"another {file}" for file in other_inputs(run, made_from)]
    if not changes and (written.get("code", {}).get("commit") or "").endswith("+"):
        return "done", UNCOMMITTED
    more = [f"{len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
    return ("stale" if changes else "done"), ", ".join([*changes[:SHOWN], *more])


def require_done(study: str, runs: Iterable[Run]) -> None:
    """Raise `UserError` where a record is missing or stale.

    A record that is as planned and older than the data is kept by Snakemake. Where the same call
    makes these data anew, of other images, the record is stale only then.
    """
    found = [(files.record_file(study, run.id), *of_run(run)) for run in runs]
    left = [f"{path}: {why}" for path, state, why in found if state in ("to do", "stale")]
    if left:
        raise UserError(
            f"{len(left)} of {len(found)} runs of study {study} have no record, or a stale one, "
            f"for example {left[0]}; `twf plan {study}` lists them, `snakemake --cores all "
            f"{files.runs_file(study)}` makes them, --partial does without"
        )


def _changes(written: Mapping[str, Any], planned: Mapping[str, Any]) -> list[str]:
    """What differs, as `lr: 0.05 -> 0.03`."""
    old, new = _flat(written), _flat(planned)
    return [
        f"{key.removeprefix('hyperparameters.')}: {_said(old.get(key))} -> {_said(new.get(key))}"
        for key in old | new
        if old.get(key) != new.get(key)
    ]


def _flat(values: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Nested values by their keys, which dots join."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{place}{key}.")
        else:
            flat[f"{place}{key}"] = value
    return flat


def _said(value: Any) -> str:
    return "none" if value is None else str(value)


def other_inputs(run: Run, made_from: Mapping[str, str]) -> list[Path]:
    """Those of a run's inputs that are there with another content than its record was made from."""
    checkpoint, data = files.checkpoint_file(run.source), files.data_file(run.data)
    there: dict[Path, dict[str, str]] = {}
    if checkpoint.exists():
        at = checkpoint.stat()
        digest = _sha256(checkpoint.absolute(), at.st_mtime_ns, at.st_size)
        there[checkpoint] = {"checkpoint_sha256": digest}
    if data.exists():
        there[data] = preflight.header(data).get("__metadata__", {})
    return [
        path
        for path, now in there.items()
        if any(made_from[key] != now[key] for key in made_from.keys() & now.keys())
    ]


@cache
def _sha256(path: Path, time: int, size: int) -> str:
    """Of a file as it was at a time: the runs of a study share few checkpoints."""
    return files.sha256(path)


def show(status: dict[str, Any], runs: bool = True) -> None:
    """Print `status`; `runs` in a table, those that differ in their seed alone as one row."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    part = f", experiment {status['experiment']}" if status["experiment"] else ""
    console.print(f"[bold]{status['study']}[/bold]{part}: {escape(status['title'])}")
    for kind in ("data", "sources"):
        parts = [f"{name} {_coloured(state)}" for name, state in status[kind].items()]
        console.print(f"{kind}: {', '.join(parts)}")
    if runs:
        console.print(_runs(status["runs"]))
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
        remark = f", {UNCOMMITTED}" if run["why"] == UNCOMMITTED else ""
        seeds[place, values, _coloured(run["status"]) + remark].append(seed)
    table = Table()
    table.add_column("run", no_wrap=True)
    table.add_column("hyperparameters", overflow="fold")
    table.add_column("status", no_wrap=True)
    for (place, values, state), found in seeds.items():
        numbers = ",".join(found)
        name = f"{place}.s{{{numbers}}}" if len(found) > 1 else f"{place}.s{numbers}"
        table.add_row(name, values, state)
    return table


def _coloured(state: str) -> str:
    return f"[{COLOURS[state]}]{state}[/]"
