"""What a study's numbers rest on: deviations from the paper, hyperparameters, networks, code."""

import pandas as pd

from twf import files
from twf.results import record, show
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
    names, rows = ["Benchmark", "Method", "Buffer", "Hyperparameters", "From", "Protocol"], []
    for table in plan.tables.values():
        for cell in table.cells:
            values = plan.runs[next(iter(cell.runs.values()))].hyperparameters.text
            origins = [f"variant {table.experiment}.{cell.variant}"] if cell.retuned else []
            origins += [f"search: {', '.join(cell.searched)}"] if cell.searched else []
            origins += [f"untuned: {name}"] if (name := untuned(cell)) else []
            about = table.benchmark, METHODS[cell.method].title, str(cell.buffer or "—"), values
            origin = "; ".join(origins) or "params.yaml"
            rows.append((*about, origin, PROTOCOL_TITLES[cell.protocol]))
    protocols = pd.DataFrame(rows, columns=names).drop_duplicates().groupby(names[:-1], sort=False)
    return show.rows(protocols["Protocol"].agg(", ".join).reset_index())


def _networks(plan: Plan) -> list[TextRow]:
    """The networks that runs start from, as their files say; no tensor is read."""
    rows = []
    for name in plan.sources:
        path = files.checkpoint_file(name)
        about = files.about(path)
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
    values: list[tuple[str, str]] = []
    for row in show.rows(runs):
        made, method = row["provenance"], row["method"]
        code = made["code"]
        other = code.get("method_hash") != code_hash(LOOP, method_module(method))
        own = f"{code.get('method_hash')}{f' ({OTHER_CODE})' if other else ''}"
        about = {"commit": code["commit"] or "unknown", "twf": code["version"]}
        about |= {"precision": record.precision(made), f"code of {METHODS[method].title}": own}
        inputs = made.get("inputs", {}).items()
        about |= {f"{row['benchmark']}, {key}": value for key, value in inputs}
        values += [(key, str(value)) for key, value in (about | made["versions"]).items()]
    counts = pd.DataFrame(values, columns=["What", "Value"]).groupby(["What", "Value"]).size()
    return show.rows(counts.astype(str).reset_index(name="Runs"))
