"""What a study's numbers rest on: runs, deviations from the paper, data, networks, code, hardware.

What no record, checkpoint or entry of params.yaml says is *not recorded*.
"""

import json
from collections import defaultdict
from typing import Any

import pandas as pd

from twf import files
from twf.results import search, show
from twf.results.frame import STATUSES, Results, key_of
from twf.results.show import PROTOCOL_TITLES, Section, TextRow
from twf.study import Plan
from twf.study.methods import METHODS, SWITCHES
from twf.study.params import Params
from twf.study.types import Fidelity

NOT_RECORDED = "not recorded"
FOLLOWED = {"paper": "the paper", "published": "the published code"}


def facts(results: Results) -> dict[str, str]:
    """What was run, with how many seeds, and how long it took: a line each."""
    runs = results.runs
    counts = runs["status"].value_counts()
    states = [f"{counts[state]} {state}" for state in STATUSES if state in counts]
    trained = runs[runs["status"].isin(["finished", "diverged"])]
    hours = trained.groupby("device")["seconds"].sum() / 3600
    lines = {
        "Runs": f"{len(runs)} planned: {', '.join(states)}",
        "Seeds": ", ".join(map(str, sorted(set(runs["seed"])))),
        "Time of the runs": "; ".join(f"{n:.2f} hours on {name}" for name, n in hours.items())
        or "—",
    }
    origins = _origins(results)
    decisive = origins[origins["Of"].isin(["Method", "Input", "Precision"])]
    values = decisive.groupby("What")["Value"].nunique()
    differ = values.index[values > 1]
    return lines | ({"Runs differ in": "; ".join(differ)} if len(differ) else {})


def sections(params: Params, results: Results) -> list[Section]:
    """The tables of the report's provenance."""
    counts = _origins(results).value_counts(sort=False)  # each value once
    return [
        Section(
            "Deviations",
            deviations(params, results.plan),
            "Where the paper's authors published code that differs from its text, or decides what "
            "that leaves open, a switch of params.yaml says which of the two a study follows: "
            "docs/fidelity.md has each, and what is done otherwise without a switch.",
        ),
        Section(
            "Hyperparameters",
            hyperparameters(results),
            "From params.yaml, but for what a variant sets, or a search on held-out training "
            "images has chosen. Untuned: the paper does not print it, and no search has chosen "
            "it; no claim on such a method is decided.",
        ),
        Section(
            "Pretrained networks",
            _networks(results.plan),
            "As their files say; accuracy is on the source's test images. The paper names the "
            "number of epochs only; the rest of the recipe is ours.",
        ),
        Section(
            "Code, inputs and software",
            show.rows(counts.reset_index(name="Runs").astype(str)),
            "A method's hash is of the code in use. A commit with a + had changed files: the hash "
            "tells such code apart, the commit does not bring it back.",
        ),
    ]


def deviations(params: Params, plan: Plan) -> list[TextRow]:
    """Which of the paper and the published code a study follows where they differ.

    `Otherwise in` names the variants that follow the other. docs/fidelity.md says what each means.
    """
    flipped = defaultdict(list)
    for name, experiment in params.named_study(plan.study).experiments.items():
        for variant, changes in experiment.variants.items():
            for switch, side in changes.fidelity.items():
                flipped[switch, side].append(f"{name}.{variant}")
    return [
        {"": switch, "Subject": SWITCHES[switch], "As in": FOLLOWED[side]}
        | {"Otherwise in": ", ".join(flipped[switch, _other(side)]) or "—"}
        for switch, side in params.switches(plan.study).items()
    ]


def _other(side: Fidelity) -> Fidelity:
    return "published" if side == "paper" else "paper"


def unfinished(results: Results) -> list[TextRow]:
    """The runs that no mean includes; missing ones are only counted."""
    left = results.runs[results.runs["status"] != "finished"].sort_index()
    missing = left["status"] == "missing"
    rows = [
        {"Run": str(run), "Status": row["status"], "Reason": row["reason"] or "—"}
        for run, row in left[~missing].iterrows()
    ]
    none = {"Run": f"{missing.sum()} runs", "Status": "missing", "Reason": "no record"}
    return rows + ([none] if missing.any() else [])


def hyperparameters(results: Results) -> list[TextRow]:
    """The hyperparameters of each cell of the study's tables, and where each has them from."""
    plan, untuned = results.plan, search.untuned(results.plan)
    protocols: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for table in plan.tables.values():
        for cell in table.cells:
            values = plan.runs[next(iter(cell.runs.values()))].hyperparameters
            origins = [f"variant {table.experiment}.{cell.variant}"] if cell.retuned else []
            origins += [f"search: {', '.join(cell.searched)}"] if cell.searched else []
            if name := untuned.get(key_of(table.benchmark, table.paper_source, cell)):
                origins.append(f"untuned: {name}")
            title, buffer = METHODS[cell.method].title, str(cell.buffer or "—")
            row = table.benchmark, title, buffer, values.text, "; ".join(origins) or "params.yaml"
            protocols[row].append(PROTOCOL_TITLES[cell.protocol])
    names = "Benchmark", "Method", "Buffer", "Hyperparameters", "From"
    return [
        dict(zip(names, row, strict=True)) | {"Protocol": ", ".join(dict.fromkeys(served))}
        for row, served in protocols.items()
    ]


def _networks(plan: Plan) -> list[TextRow]:
    """The networks that runs start from, as their files say; no tensor is read."""
    rows = []
    for name in plan.sources:
        path = files.checkpoint_file(name)
        about = json.loads(files.header(path).get("__metadata__", {}).get("about", "{}"))
        accuracy, seconds = about.get("test_accuracy"), about.get("seconds")
        recipe = [f"{key}={value}" for key, value in (about.get("pretraining") or {}).items()]
        rows.append(
            {
                "Source": name,
                "Accuracy": NOT_RECORDED if accuracy is None else f"{accuracy:.2f} %",
                "Recipe": " ".join(filter(None, [about.get("weights"), *recipe])) or NOT_RECORDED,
                "Hours": NOT_RECORDED if seconds is None else f"{seconds / 3600:.3f}",
                "SHA-256": files.sha256(path) if path.exists() else f"no {path}",
            }
        )
    return rows


def _origins(results: Results) -> pd.DataFrame:
    """Where the records come from: a row for each thing that a record names, with its value."""
    rows: list[tuple[str, str, Any]] = []
    for row in show.rows(results.runs[results.runs["provenance"].map(bool)]):
        made, code = row["provenance"], row["provenance"]["code"]
        precision = made.get("precision", NOT_RECORDED)
        if precision == "tf32" and "cuda" not in made["versions"]:  # a CPU has none
            precision = "fp32"
        where = f"{row['benchmark']} from {row['source']}"
        inputs = made.get("inputs", {}).items()
        rows += [
            ("Code", f"twf {code['version']}", f"commit {code['commit'] or 'unknown'}"),
            ("Method", METHODS[row["method"]].title, code.get("method_hash")),
            ("Precision", "precision of products", precision),
            ("Execution", "steps", made.get("execution", NOT_RECORDED)),
            *(("Input", f"{where}, {name.replace('_', ' ')}", value) for name, value in inputs),
            *(("Version", name, value) for name, value in made["versions"].items()),
        ]
    return pd.DataFrame(rows, columns=["Of", "What", "Value"]).astype(str)
