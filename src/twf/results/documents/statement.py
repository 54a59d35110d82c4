"""The reproducibility statement of a study: what was done, how, on what, and what is missing.

It is made of the study's records, of the checkpoints' metadata, the origin of the data and
params.yaml. What is missing is said to be so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from twf import files
from twf.data import origin
from twf.results import output, search
from twf.results.documents import model_cards, summary
from twf.results.documents.model_cards import Network
from twf.results.documents.summary import NOT_RECORDED
from twf.results.output import PROTOCOL_TITLES, Markdown, Row, Texts
from twf.results.paper import claim_evaluation, comparison
from twf.results.published import key_of
from twf.results.runs import Runs
from twf.study import Plan
from twf.study.grids import load_best_hyperparameters
from twf.study.methods import METHODS
from twf.study.params import Params
from twf.study.switches import SWITCHES


def write(params: Params, runs: Runs) -> None:
    """Write the statement of a study, and the model card of each network that it starts from."""
    plan, study = runs.plan, params.named_study(runs.plan.study)
    compared = comparison.compare(params, runs)
    claims = claim_evaluation.evaluate_all(runs)
    networks = [model_cards.read(name, params.sources[name]) for name in plan.sources]
    trials, best, _ = files.search_files(plan.study)
    cards = Path(files.MODEL_CARDS).name
    values = {
        "title": plan.title,
        "note": plan.note,
        "study": plan.study,
        "status": runs.counts(plan.runs),
        "agreement": summary.agreement(compared, claims),
        "verdicts": verdicts(compared, plan.study),
        "elsewhere": sum(row["study"] != plan.study for row in compared),
        "printed": len(compared),
        "claims": _claims(claims),
        "switches": switches(params, plan),
        "choices": summary.choices(params, plan),
        "unfinished_tables": list(summary.unfinished(runs).values()),
        "unfinished_runs": [  # with a record that is in no mean
            {"Run": name, "Status": outcome.status, "Reason": outcome.row["reason"] or "—"}
            for name, outcome in sorted(runs.outcomes.items())
            if outcome.status not in ("finished", "missing")
        ],
        "seeds": [
            {"Experiment": e.title, "Seeds": ", ".join(map(str, e.seeds or study.seeds))}
            for e in study.experiments.values()
        ],
        "margin": comparison.MARGIN,
        "streams": _streams(params, plan),
        "hyperparameters": hyperparameters(params, runs),
        "search": {
            "cells": len(plan.search),
            "trials": sum(len(cell.trials) for cell in plan.search),
            "all": trials.name,
            "best": best.name,
        },
        **_data(params, runs, networks),
        "networks": networks,
        "network_table": [  # those that runs start from, as their files say
            {
                "Source": Markdown(f"[{network.source}]({cards}/{network.source}.md)"),
                "Accuracy on its test images": network.accuracy
                if network.about
                else network.problem or network.accuracy,
                "SHA-256 of the file": network.sha256 or NOT_RECORDED,
            }
            for network in networks
        ],
        "provenance": [row for row in summary.provenance(runs) if row["Of"] != "Devices"],
        **_hours(runs),
        **_commits(runs),
        "report": str(files.report_file(plan.study)),
    }
    output.write_text("reproducibility.md.j2", values, files.statement_file(plan.study))
    model_cards.write(params, runs, networks)


def _hours(runs: Runs) -> dict[str, Any]:
    """Hours of the runs that finished or diverged, by device; GPUs are those that CUDA drove."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    total = {"GPU": 0.0, "CPU": 0.0}
    for outcome in runs.outcomes.values():
        if outcome.ended:
            kind, hours = "GPU" if outcome.on_gpu else "CPU", outcome.row["seconds"] / 3600
            found[kind, str(outcome.row["device"])].append(hours)
            total[kind] += hours
    rows = [
        {"": kind, "Device": device, "Runs": str(len(each)), "Hours": f"{sum(each):.2f}"}
        for (kind, device), each in sorted(found.items())
    ]
    return {"hours": rows, "all_hours": total}


def _commits(runs: Runs) -> dict[str, list[str]]:
    """The commits that the records name, and those of them that can be checked out.

    They stand in a command to be copied, so nothing else passes for a commit.
    """
    named = sorted({outcome.provenance["code"]["commit"] or "" for outcome in runs.recorded()})
    clean = [commit for commit in named if re.fullmatch(r"[0-9a-f]{7,64}", commit)]
    return {"commits": clean, "no_commits": [commit for commit in named if commit not in clean]}


def verdicts(compared: Sequence[Row], study: str) -> list[Texts]:
    """How many verdicts there are on each of the paper's tables."""
    found = []
    for number, rows in comparison.by_table(compared).items():
        counts = Counter(row["verdict"] for row in rows)
        texts = {"Table of the paper": str(number), "Numbers": str(len(rows))}
        texts["In this study"] = str(sum(row["study"] == study for row in rows))
        found.append(texts | {v.capitalize(): str(counts[v]) for v in comparison.VERDICTS})
    return found


def _claims(claims: Sequence[Row]) -> list[Texts]:
    left_out = ("Power, 1 and 2 SD", "Probability", "Weakest", "Contradicted in")
    entries = [claim_evaluation.entry(row) for row in claims if row["verdict"] != "not run"]
    return [{name: row[name] for name in row if name not in left_out} for row in entries]


def switches(params: Params, plan: Plan) -> list[Texts]:
    """Each place where the published code differs from the paper, and what this study does."""
    runs, experiments = plan.runs.values(), params.named_study(plan.study).experiments
    found = []
    for switch, deviation in SWITCHES.items():
        value = params.switches(plan.study)[switch]
        means, other = deviation.published, deviation.paper
        if value == "paper":
            means, other = other, means
        followed = Counter(run.fidelity[switch] for run in runs if switch in run.fidelity)
        flipped = [
            f"{changes.fidelity[switch]} in {name}.{variant}"
            for name, experiment in experiments.items()
            for variant, changes in experiment.variants.items()
            if switch in changes.fidelity
        ]
        found.append(
            {
                "": switch,
                "Subject": Markdown(deviation.subject),
                "Set to": value,
                "Which means": Markdown(means),
                "Instead of": Markdown(other),
                "Runs": ", ".join(f"{n} {which}" for which, n in sorted(followed.items())) or "—",
                "Variants": ", ".join(flipped) or "—",
            }
        )
    return found


def _streams(params: Params, plan: Plan) -> list[Texts]:
    """How each benchmark is trained; the text beside the table says what is CO2L's own."""
    found = []
    for name in dict.fromkeys(run.benchmark for run in plan.runs.values()):
        benchmark = params.benchmark(name, plan.study)
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


def hyperparameters(params: Params, runs: Runs) -> list[Texts]:
    """The hyperparameters of each cell of the study's tables, and where each has them from."""
    plan, untuned = runs.plan, search.untuned(runs)
    study = params.named_study(plan.study)
    best = load_best_hyperparameters(study.best_hyperparameters, plan.study)
    protocols: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for table in plan.tables.values():
        for cell in table.cells:
            values = plan.runs[next(iter(cell.runs.values()))].hyperparameters
            of_method = cell.method, cell.buffer, cell.protocol
            benchmark = params.benchmarks[table.benchmark]
            as_set = benchmark.hyperparameters(*of_method, params.switches(plan.study))
            source = f"variant {table.experiment}.{cell.variant}"
            if values == best.of((table.benchmark, *of_method), as_set):
                source = "search"
            elif values == as_set:
                source = "params.yaml"
            if name := untuned.get(key_of(table, cell)):
                source += f"; untuned: {name}"
            buffer = "—" if cell.buffer is None else str(cell.buffer)
            place = (table.benchmark, METHODS[cell.method].title, buffer, values.text, source)
            protocols[place].append(PROTOCOL_TITLES[cell.protocol])
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


def _data(params: Params, runs: Runs, networks: Sequence[Network]) -> dict[str, Any]:
    """The images: whose they are, and the fingerprints that records and networks have of them."""
    sources = {network.source: params.sources[network.source].data for network in networks}
    names = dict.fromkeys([*runs.plan.data, *(data for data in sources.values() if data)])
    said = [(outcome.run.data, outcome.provenance.get("inputs", {})) for outcome in runs.recorded()]
    for network in networks:
        trained_on = {"train_fingerprint": network.about.get("data_fingerprint")}
        said.append((sources[network.source] or "", trained_on))
    whose = {name: origin.of_dataset(params.datasets[name]) for name in names}
    fingerprints = []
    for name, split in product(names, ("train", "test")):
        values = [inputs.get(f"{split}_fingerprint") for data, inputs in said if data == name]
        for value, count in Counter(filter(None, values)).items() or [(None, 0)]:
            checked = model_cards.checked(whose[name], params.datasets[name], split, value)
            texts = {"Data set": name, "Images": split, "Fingerprint": value or NOT_RECORDED}
            fingerprints.append(texts | {"Checked": checked, "Said by": str(count)})
    sets = [
        {"Data set": name, "What": of.title, "Licence": of.licence or NOT_RECORDED}
        for name, of in whose.items()
    ]
    citations = dict.fromkeys(of.citation for of in whose.values() if of.citation)
    return {"data_sets": sets, "fingerprints": fingerprints, "citations": list(citations)}
