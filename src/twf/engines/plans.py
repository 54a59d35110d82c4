"""Plan files: what each product is to be made by, for both engines.

Snakemake looks at times, and DVC at contents. A plan file is older than its product exactly where
the product carries that plan, so both see the same, whatever git, DVC, `cp`, `--touch` or a clock
did. Plan files are replaced, never changed in place, so that a link to one stays whole.
"""

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from twf import files
from twf.data import registry
from twf.errors import UserError, lookup
from twf.results import record, status
from twf.study import Plan, expand, products
from twf.study.expansion import load_best_hyperparameters
from twf.study.params import Params, Tracking

INPUTS = "data and networks"  # the group of plans that studies share
SETTINGS = files.PLANS / ".settings.json"  # what jobs are told beside their plans


@dataclass
class Written:
    """Plans that were written; they are held for this process as long as this is kept."""

    why: dict[str, str] = field(default_factory=dict)  # stale files, and what is not as planned
    held: list[IO[str]] = field(default_factory=list)


def write(params: Params, *studies: str) -> Written:
    """Write the plans of all data sets and networks, and of some studies, and hold them.

    Raises `UserError` for an unknown study, one that waits for another's search or takes the best
    of a benchmark that there is not or of no cell of its own, a folder that cannot be written to,
    weights in `archives/` that the registry does not have, and where another process works by
    other plans.
    """
    written, current = Written(), products.Products(params)
    with _group(INPUTS, written) as free:
        inputs = [*map(current.data, params.datasets), *map(current.network, params.sources)]
        _write(inputs, written, free)
        settings = {"gpu_slots": params.gpu_slots, "tracking": params.tracking.model_dump()}
        _replace(SETTINGS, _text(settings), time.time())  # at once, as no result depends on these
    for study in studies:
        plan, file = expand(params, study), params.studies[study].best_hyperparameters
        for benchmark, *_ in (best := load_best_hyperparameters(file, study)):
            lookup("benchmark", params.benchmarks, benchmark, str(file))
        tables = plan.tables.values()
        cells = {(t.benchmark, c.method, c.buffer, c.protocol) for t in tables for c in t.cells}
        if cells and best and best.keys().isdisjoint(cells):
            raise UserError(f"studies.{study}.best_hyperparameters: {file} has none of its cells")
        for name in plan.sources:
            place = Path(params.sources[name].weights or "")
            own = files.ARCHIVES in place.parents and registry.of_file(place) is None
            if own and place.exists():
                raise UserError(
                    f"sources.{name}.weights: the registry has no {place}, and {files.ARCHIVES}/ "
                    "is for what it fetches: move a file of your own elsewhere"
                )
        runs = status.of_runs(plan)
        with _group(study, written) as free:
            _write([*runs.values()], written, free)
            wanted, carried = status.wanted(plan, runs), record.carried(files.runs_file(study))
            # unsorted: the first experiment is the main one, and names the runs that others share
            text = _text(products.study_values(params, plan), sort_keys=False)
            made = None if carried is None else files.runs_file(study)
            # without collected records, only tables and searches tell by time what they are of
            agree = made is not None and carried == wanted
            _set(files.study_plan(study), text, made, agree, free)
            if free:
                _order_report(plan, carried)
    return written


def settings() -> tuple[int, Tracking]:
    """How many jobs share a GPU, and the tracking, as `write` left them for jobs."""
    values = products.read_plan(SETTINGS)
    return values["gpu_slots"], Tracking.model_validate(values["tracking"])


def is_made(product: Path, plan: Path) -> bool:
    """Whether a product is there as planned: then its plan is all that it needs, and no data."""
    return product.exists() and product.stat().st_mtime > plan.stat().st_mtime


@contextlib.contextmanager
def _group(name: str, written: Written) -> Iterator[bool]:
    """Hold a group's lock: alone while plans are written, then shared; False if others do too."""
    path = files.PLANS / f".{name}.lock"
    with files.writing(path):
        path.parent.mkdir(exist_ok=True)
        lock = path.open("a+", encoding="utf-8")  # NFS: alone needs writing, shared reading
    written.held.append(lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(lock, fcntl.LOCK_SH)  # once the other has written its plans
        yield False
    else:
        yield True
        fcntl.flock(lock, fcntl.LOCK_SH)


def _write(planned: list[products.Product], written: Written, free: bool) -> None:
    """Write the plans of products, and remove those of what is no longer planned."""
    kept = {product.plan_file for product in planned}
    for folder in {path.parent for path in kept} if free else ():
        for path in set(folder.glob("*.json")) - kept:
            path.unlink()
    written.why |= {str(one.file): one.why for one in planned if one.state == "stale"}
    for product in planned:
        made = None if product.made is None else product.file
        _set(product.plan_file, _text(product.plan), made, product.state != "stale", free)


def _order_report(plan: Plan, carried: str | None) -> None:
    """Make the collected table older than a report of the same plan, and newer than another.

    A table of another plan, or what a search by another found, is older than the plan; a report
    whose tables are not all there is made again. `carried` is the plan of the collected table; None
    without one.
    """
    study, mark_of_plan = plan.study, products.study_digest(plan)
    shown = [files.table_file(study, name, "md") for name in plan.tables]
    shown += [files.search_files(study)[1]] * bool(plan.search)
    others = [path for path in shown if record.carried(path) != mark_of_plan]
    for path in others:
        if is_made(path, files.study_plan(study)):
            _set_time(path, 0.5)  # before any plan; Snakemake takes 0 for none
    if carried is None:
        return
    collected, report = files.runs_file(study), files.report_file(study)
    both = files.estimates_file(study, "parquet"), report
    marked = {path: record.carried(path) for path in both}
    at = collected.stat().st_mtime
    if set(marked.values()) == {carried} and not others:
        made = [*report.parent.glob("[!.]*.*"), *report.parent.glob("[tf]*/*")]
        if (first := min(path.stat().st_mtime for path in made if path.exists())) < at:
            _set_time(collected, first)
    for path, mark in marked.items():
        if mark is not None and (mark != carried or others):
            _set_time(path, at - 1)


def _set(path: Path, text: str, made: Path | None, agree: bool, free: bool) -> None:
    """Write a plan file, older than what is `made` by it where they `agree`, newer where not."""
    same = path.exists() and path.read_text(encoding="utf-8") == text
    if not free:
        if not same:
            raise UserError(
                "a process works here with other parameters, by the plan of "
                f"{path}: wait for it, or undo the change"
            )
        return
    made_at = math.inf if made is None else made.stat().st_mtime
    if agree:
        # before all; of its own, as DVC takes files of one size and time for the same
        at = min(1.0 + int(products.digest(text)[:6], 16), made_at - 1)
    elif same and (made is None or path.stat().st_mtime > made_at):
        return
    else:
        at = time.time()
        if made is not None and made_at > at - 1:  # just made, or by a clock that is ahead
            _set_time(made, at - 1)
    if not same or path.stat().st_mtime != at:
        _replace(path, text, at)


def _replace(path: Path, text: str, at: float) -> None:
    with files.atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")
        os.utime(partial, (at, at))


def _set_time(path: Path, at: float) -> None:
    with files.writing(f"the time of {path}"):
        os.utime(path, (at, at))


def _text(values: Any, sort_keys: bool = True) -> str:
    # not escaped: of a character in two escapes, a reader of YAML makes two that are none
    return json.dumps(values, sort_keys=sort_keys, ensure_ascii=False, indent=1) + "\n"


def records_of_plans(study: str) -> list[str]:
    """The records of a study's plans."""
    plans = sorted(files.run_plan(study, "x").parent.glob("*.json"))
    return [str(files.record_file(study, path.stem)) for path in plans]


def inputs_of(plan: products.Values) -> list[str]:
    """What a run is made from: the data of its benchmark, of its source if needed, its network."""
    network = files.checkpoint_file(plan["parameters"]["source"])
    return [*map(str, map(files.data_file, plan["data"])), str(network)]


def stages(plan: Plan) -> list[str]:
    """DVC's stages of a study: its data, its networks, its runs and its report."""
    data = (f"data@{name}" for name in plan.data)
    networks = (f"pretrain@{name}" for name in plan.sources)
    return [*data, *networks, f"runs@{plan.study}", f"report@{plan.study}"]
