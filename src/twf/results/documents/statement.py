"""The reproducibility statement of a study: what was done, how, on what, and what is missing.

It is made of the study's records, of what was made of them (comparison and claims), of the
checkpoints' metadata, the origin of the data and params.yaml. What is missing is said to be so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

from twf import files
from twf.data import origin
from twf.files import claims_file, comparison_file, report_file, search_files, statement_file
from twf.results import output, record, tables
from twf.results.documents import model_cards, report_summary
from twf.results.documents.model_cards import Networks
from twf.results.documents.report_summary import Rows
from twf.results.paper import claim_evaluation
from twf.results.paper.comparison import MARGIN, VERDICTS
from twf.study import Cell, Plan, Table
from twf.study.grids import load_best_hyperparameters
from twf.study.methods import METHODS
from twf.study.params import Params
from twf.study.switches import SWITCHES
from twf.study.types import Hyperparameters


def write(params: Params, plan: Plan) -> None:
    """Write the statement of a study, and the model card of each network that it starts from.

    Raises `UserError` where the records have not been collected.
    """
    rows = report_summary.rows_of(plan, record.read_collected(plan.study))
    command = f"twf compare {plan.study}"
    compared = output.read_made(comparison_file(plan.study, "parquet"), command)
    claims = output.read_made(claims_file(plan.study, "parquet"), command)
    networks = {source: model_cards.read(source) for source in plan.sources}
    provenance = report_summary.provenance(rows)
    values = {
        "title": plan.title,
        "study": plan.study,
        "status": report_summary.status_counts(plan.runs, rows),
        "not_made": [made for made in (compared, claims) if isinstance(made, str)][:1],
        **_beside_the_paper(plan, compared, claims),
        "switches": switches(params, plan),
        "holes": report_summary.holes(plan, rows),
        "unfinished": _unfinished(rows),
        "seeds": _seeds(params, plan),
        "margin": MARGIN,
        "streams": _streams(params, plan),
        "hyperparameters": hyperparameters(params, plan),
        "searches": _searches(plan),
        "data": _data(params, plan, rows, networks),
        "networks": _networks(networks),
        "provenance": {kind: lines for kind, lines in provenance.items() if kind != "Devices"},
        "hours": hours(rows),
        "cards": Path(files.MODEL_CARDS).name,
        **_commits(rows),
        "report": str(report_file(plan.study)),
    }
    output.write_text("reproducibility.md.j2", values, statement_file(plan.study))
    model_cards.write(params, plan, rows, networks)


def _known(rows: Rows) -> list[dict[str, Any]]:
    """The records that say where they come from."""
    return [row for row in rows.values() if row["provenance"]]


def _commits(rows: Rows) -> dict[str, list[str]]:
    """The commits that the records name, and those of them that can be checked out.

    They stand in a command to be copied, so nothing else passes for a commit.
    """
    named = sorted({row["provenance"]["code"]["commit"] or "" for row in _known(rows)})
    clean = [commit for commit in named if re.fullmatch(r"[0-9a-f]{7,64}", commit)]
    return {"commits": clean, "no_commits": [commit for commit in named if commit not in clean]}


def _beside_the_paper(
    plan: Plan, compared: pd.DataFrame | str, claims: pd.DataFrame | str
) -> dict[str, Any]:
    """The verdicts by the paper's tables, and the claims; empty where they have not been made."""
    found: dict[str, Any] = {"agreement": [], "verdicts": [], "claims": []}
    if isinstance(compared, pd.DataFrame):
        found["agreement"] += report_summary.agreement(compared)
        for number, part in compared.groupby("published_table"):
            counts = Counter(part["verdict"])
            row = {"Table of the paper": number, "Numbers": len(part)}
            row |= {"In this study": int((part["study"] == plan.study).sum())}
            verdicts = {verdict.capitalize(): counts[verdict] for verdict in VERDICTS}
            found["verdicts"].append(row | verdicts)
    if isinstance(claims, pd.DataFrame):
        found["agreement"] += report_summary.claim_counts(claims)
        shown = ("Claim", "Margin", "Paper's numbers", "Ours", "Cells run", "Seeds", "Verdict")
        entries = [claim_evaluation.entry(row) for row in claims.to_dict("records")]
        found["claims"] = [{heading: entry[heading] for heading in shown} for entry in entries]
    return found


def switches(params: Params, plan: Plan) -> list[dict[str, str]]:
    """Each place where the published code parts from the paper, and what this study does there."""
    followed: dict[str, Counter[str]] = defaultdict(Counter)
    for run in plan.runs.values():
        for switch, value in run.fidelity.items():
            followed[switch][value] += 1
    flipped: dict[str, list[str]] = defaultdict(list)
    for name, experiment in params.named_study(plan.study).experiments.items():
        for variant, changes in experiment.variants.items():
            for switch, value in changes.fidelity.items():
                flipped[switch].append(f"{value} in {name}.{variant}")
    found = []
    for switch, deviation in SWITCHES.items():
        value = params.fidelity[switch]
        means, other = deviation.published, deviation.paper
        if value == "paper":
            means, other = other, means
        counts = (f"{count} {which}" for which, count in sorted(followed[switch].items()))
        found.append(
            {
                "switch": switch,
                "subject": deviation.subject,
                "value": value,
                "means": means,
                "instead_of": other,
                "runs": ", ".join(counts) or "—",
                "variants": ", ".join(flipped[switch]) or "—",
            }
        )
    return found


def _unfinished(rows: Rows) -> list[tuple[str, str, str]]:
    """The records that are in no mean: run, status, reason."""
    return [
        (run, row["status"], row["reason"] or "—")
        for run, row in sorted(rows.items())
        if row["status"] != "finished"
    ]


def _seeds(params: Params, plan: Plan) -> dict[str, str]:
    """The seeds of each experiment."""
    study = params.named_study(plan.study)
    return {
        experiment.title: ", ".join(map(str, experiment.seeds or study.seeds))
        for experiment in study.experiments.values()
    }


def _streams(params: Params, plan: Plan) -> list[dict[str, str]]:
    """How each benchmark is trained, whatever the method."""
    found = []
    for name in dict.fromkeys(run.benchmark for run in plan.runs.values()):
        benchmark = params.benchmarks[name]
        decay = benchmark.lr_decay
        steps = f"times {decay.factor:g} after epochs {decay.epochs}" if decay else "constant"
        found.append(
            {
                "Benchmark": benchmark.title,
                "Classes": str(params.datasets[benchmark.data].classes),
                "Tasks": str(benchmark.tasks),
                "Epochs per task": str(benchmark.epochs),
                "Batch": str(benchmark.batch_size),
                "Learning rate": steps,
            }
        )
    return found


def hyperparameters(params: Params, plan: Plan) -> list[dict[str, str]]:
    """The hyperparameters of each cell of the study's tables, and where each has them from."""
    best = load_best_hyperparameters(
        params.named_study(plan.study).best_hyperparameters, plan.study
    )
    protocols: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for table in plan.tables.values():
        for cell in table.cells:
            run = plan.runs[next(iter(cell.runs.values()))]
            values = run.hyperparameters.text
            buffer = "—" if cell.buffer is None else str(cell.buffer)
            place = (table.benchmark, METHODS[cell.method].title, buffer)
            searched = best.get((table.benchmark, cell.method, cell.buffer, cell.protocol))
            source = _origin(params, table, cell, run.hyperparameters, searched)
            protocols[*place, values, source].append(tables.PROTOCOL_TITLES[cell.protocol])
    return [
        {
            "Benchmark": benchmark,
            "Method": method,
            "Buffer": buffer,
            "Protocol": ", ".join(dict.fromkeys(found)),
            "Hyperparameters": values,
            "From": source,
        }
        for (benchmark, method, buffer, values, source), found in protocols.items()
    ]


def _origin(
    params: Params,
    table: Table,
    cell: Cell,
    values: Hyperparameters,
    searched: Hyperparameters | None,
) -> str:
    benchmark = params.benchmarks[table.benchmark]
    as_set = benchmark.hyperparameters(cell.method, cell.buffer, cell.protocol, params.fidelity)
    if values == searched:
        return "search"
    if values == as_set:
        return "params.yaml"
    return f"variant {table.experiment}.{cell.variant}"


def _searches(plan: Plan) -> dict[str, Any] | None:
    """What the study searches for; nothing where it does not."""
    if not plan.search:
        return None
    trials = sum(len(cell.trials) for cell in plan.search)
    trials_file, best_page, _ = search_files(plan.study)
    found = {"cells": len(plan.search), "trials": trials}
    return found | {"all": trials_file.name, "best": best_page.name}


def _data(params: Params, plan: Plan, rows: Rows, networks: Networks) -> dict[str, Any]:
    """The images: whose they are, and the fingerprints that records and networks have of them."""
    sources = {name: params.sources[name].data for name in plan.sources}
    names = dict.fromkeys([*plan.data, *(data for data in sources.values() if data is not None)])
    said: dict[str, dict[str, Counter[str]]] = {n: defaultdict(Counter) for n in names}
    for row in _known(rows):
        for split in ("train", "test"):
            value = row["provenance"].get("inputs", {}).get(f"{split}_fingerprint")
            if value:
                said[plan.runs[row["run"]].data][split][value] += 1
    for source, data in sources.items():
        network = networks[source]
        value = None if isinstance(network, str) else network.about.get("data_fingerprint")
        if data is not None and value:
            said[data]["train"][value] += 1
    whose = {name: origin.of_dataset(params.datasets[name]) for name in names}
    return {
        "sets": [
            {"Data set": name, "What": of.title, "Licence": of.licence or model_cards.HOLE}
            for name, of in whose.items()
        ],
        "fingerprints": [
            {
                "Data set": name,
                "Images": split,
                "Fingerprint": value or model_cards.HOLE,
                "Checked": model_cards.checked(whose[name], params.datasets[name], split, value),
                "Said by": str(count),
            }
            for name in names
            for split in ("train", "test")
            for value, count in (said[name][split] or {None: 0}).items()
        ],
        "citations": list(dict.fromkeys(of.citation for of in whose.values() if of.citation)),
    }


def _networks(networks: Networks) -> list[dict[str, Any]]:
    """The networks that runs start from, as their files say."""
    found = []
    for source, network in networks.items():
        line = {"source": source, "sha256": model_cards.HOLE, "seconds": None}
        if isinstance(network, str):
            found.append(line | {"accuracy": network})
        else:
            about = {name: network.about.get(name) for name in ("seconds", "device")}
            accuracy = model_cards.accuracy(network.about)
            found.append(line | about | {"accuracy": accuracy, "sha256": network.sha256})
    return found


def hours(rows: Rows) -> list[dict[str, Any]]:
    """Hours of the runs that finished or diverged, by device; GPUs are those that CUDA drove."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in _known(rows):
        if row["status"] in ("finished", "diverged"):
            kind = "GPU" if "cuda" in row["provenance"]["versions"] else "CPU"
            found[kind, str(row["device"])].append(row["seconds"] / 3600)
    return [
        {"kind": kind, "device": device, "runs": len(values), "hours": sum(values)}
        for (kind, device), values in sorted(found.items())
    ]
