"""What a study's numbers rest on: deviations from the paper, hyperparameters, networks, code."""

import json
from collections import Counter, defaultdict

import pandas as pd

from twf import files
from twf.results import show
from twf.results.frame import Results, untuned
from twf.results.show import PROTOCOL_TITLES, Section, TextRow
from twf.results.status import OTHER_CODE
from twf.study import Plan
from twf.study.code import LOOP, code_hash, method_module
from twf.study.methods import METHODS, SWITCHES

FOLLOWED = {"paper": "the paper", "published": "the published code"}


def sections(results: Results) -> list[Section]:
    """The tables of the report's provenance."""
    plan, runs = results.plan, results.runs[results.runs["provenance"].map(bool)]
    hours = (runs.groupby("device")["seconds"].sum() / 3600).items()
    switches = [
        {"": switch, "Subject": SWITCHES[switch], "As in": FOLLOWED[side]}
        for switch, side in plan.params.switches(plan.study).items()
    ]
    differ = (
        "Where the published code differs from the paper, or decides what that leaves open, a "
        "switch of params.yaml says which of the two a study follows: see docs/fidelity.md."
    )
    took = ", ".join(f"{n:.2f} hours on {device}" for device, n in hours) or "no time"
    code = f"The runs took {took}. A commit with a + had changed files."
    return [
        Section("Deviations", switches, differ),
        Section("Hyperparameters", _hyperparameters(plan)),
        Section("Pretrained networks", _networks(plan)),
        Section("Code, inputs and software", _origins(runs), code),
    ]


def _hyperparameters(plan: Plan) -> list[TextRow]:
    """The hyperparameters of each cell of the study's tables, and where each has them from."""
    protocols = defaultdict[tuple[str, ...], list[str]](list)
    for table in plan.tables.values():
        for cell in table.cells:
            values = plan.runs[next(iter(cell.runs.values()))].hyperparameters.text
            origins = [f"variant {table.experiment}.{cell.variant}"] if cell.retuned else []
            origins += [f"search: {', '.join(cell.searched)}"] if cell.searched else []
            if name := untuned(cell):
                origins.append(f"untuned: {name}")
            title, buffer = METHODS[cell.method].title, str(cell.buffer or "—")
            row = table.benchmark, title, buffer, values, "; ".join(origins) or "params.yaml"
            protocols[row].append(PROTOCOL_TITLES[cell.protocol])
    names = "Benchmark", "Method", "Buffer", "Hyperparameters", "From"
    return [
        dict(zip(names, row, strict=True)) | {"Protocol": ", ".join(dict.fromkeys(titles))}
        for row, titles in protocols.items()
    ]


def _networks(plan: Plan) -> list[TextRow]:
    """The networks that runs start from, as their files say; no tensor is read."""
    rows = []
    for name in plan.sources:
        path = files.checkpoint_file(name)
        about = json.loads(files.header(path).get("__metadata__", {}).get("about", "{}"))
        recipe = [f"{key}={value}" for key, value in (about.get("pretraining") or {}).items()]
        rows.append(
            {
                "Source": name,
                "Test accuracy, %": show.number(about.get("test_accuracy")),
                "Recipe": " ".join(filter(None, [about.get("weights"), *recipe])) or "not recorded",
                "SHA-256": files.sha256(path) if path.exists() else f"no {path}",
            }
        )
    return rows


def _origins(runs: pd.DataFrame) -> list[TextRow]:
    """Each value of what made the records, and the number of runs that have it."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in show.rows(runs):
        made, name = row["provenance"], METHODS[row["method"]].title
        code, precision = made["code"], made.get("precision", "not recorded")
        if precision == "tf32" and "cuda" not in made["versions"]:  # a CPU has none
            precision = "fp32"
        other = code.get("method_hash") != code_hash(LOOP, method_module(row["method"]))
        values = {
            "commit": code["commit"] or "unknown",
            "twf": code["version"],
            "precision": precision,
            f"code of {name}": f"{code.get('method_hash')}{f' ({OTHER_CODE})' if other else ''}",
            **{
                f"{row['benchmark']}, {key}": value for key, value in made.get("inputs", {}).items()
            },
            **made["versions"],
        }
        counts.update((key, str(value)) for key, value in values.items())
    rows = sorted(counts.items(), key=lambda item: item[0][0])
    return [{"What": key, "Value": value, "Runs": str(n)} for (key, value), n in rows]
