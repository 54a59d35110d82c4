"""What a study's numbers rest on: runs, deviations from the paper, data, networks, code, hardware.

The report shows `sections`, and results/STUDY/reproducibility.md is them as a text of its own. What
no record, checkpoint or entry of params.yaml says is *not recorded*.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import Any

from safetensors import SafetensorError, safe_open

from twf import files
from twf.data import origin
from twf.data.registry import ImagesEntry
from twf.results import search, show
from twf.results.frame import STATUSES, Results, key_of
from twf.results.show import PROTOCOL_TITLES, Section, TextRow
from twf.study import Plan
from twf.study.grids import load_best_hyperparameters
from twf.study.methods import METHODS
from twf.study.params import Params
from twf.study.switches import SWITCHES

NOT_RECORDED = "not recorded"
FOLLOWED = {"paper": "the paper", "published": "the published code"}


def facts(results: Results) -> dict[str, str]:
    """What was run, with how many seeds, and how long it took: a line each."""
    runs = results.runs
    counts = runs["status"].value_counts()
    hours = runs[runs["ended"].astype(bool)].groupby("device")["seconds"].sum() / 3600
    recorded = runs[runs["provenance"].map(bool)]
    hashes = recorded["provenance"].map(lambda of: str(of["code"].get("method_hash")))
    per_method = hashes.groupby(recorded["method"]).nunique()
    mixed = [METHODS[method].title for method in METHODS if per_method.get(method, 0) > 1]
    inputs: dict[tuple[str, str], set[str]] = defaultdict(set)  # by where, and what of them
    for row in show.rows(recorded):
        for name, value in row["provenance"].get("inputs", {}).items():
            inputs[f"{row['benchmark']} from {row['source']}", name].add(value)
    differ = {
        "Code differs within": ", ".join(mixed),
        "Images or pretrained networks differ within": ", ".join(
            sorted({where for (where, _), values in inputs.items() if len(values) > 1})
        ),
    }
    return {
        "Runs": f"{len(runs)} planned: "
        + ", ".join(f"{counts[state]} {state}" for state in STATUSES if state in counts),
        "Seeds": ", ".join(map(str, sorted(set(runs["seed"])))),
        "Time of the runs": "; ".join(f"{of:.2f} hours on {name}" for name, of in hours.items())
        or "—",
    } | {what: within for what, within in differ.items() if within}


def sections(params: Params, results: Results) -> list[Section]:
    """The tables of the statement."""
    return [
        Section(
            "Deviations",
            deviations(params, results.plan),
            "Where the paper's authors published code that differs from its text, or decides what "
            "that leaves open, a switch of params.yaml says which of the two a study follows: "
            "docs/fidelity.md has each, and what is done otherwise without a switch.",
        ),
        Section("Runs that are in no mean", unfinished(results)),
        Section(
            "Hyperparameters",
            hyperparameters(params, results),
            "From params.yaml, a variant of an experiment there, or a search on held-out training "
            "images. Untuned: the paper does not print it, and no search has chosen it; no claim "
            "on such a method is decided.",
        ),
        Section(
            "Data",
            _data(params, results),
            "A fingerprint is of the labelled images, whatever their order.",
        ),
        Section(
            "Pretrained networks",
            _networks(params, results.plan),
            "As their files say; accuracy is on the source's test images. The paper names the "
            "number of epochs alone; the rest is ours.",
        ),
        Section(
            "Code, inputs and software",
            _said(results),
            "A method's hash is of the code in use. A commit with a + had changed files: the hash "
            "tells such code apart, the commit does not bring it back.",
        ),
    ]


def deviations(params: Params, plan: Plan) -> list[TextRow]:
    """Which of the paper and the published code a study follows where they differ.

    `Otherwise in` names the variants that follow the other. docs/fidelity.md says what each means.
    """
    experiments = params.named_study(plan.study).experiments.items()
    rows = []
    for switch, followed in params.switches(plan.study).items():
        flipped = [
            f"{name}.{variant}"
            for name, experiment in experiments
            for variant, changes in experiment.variants.items()
            if changes.fidelity.get(switch, followed) != followed
        ]
        names = "", "Subject", "As in", "Otherwise in"
        row = switch, SWITCHES[switch], FOLLOWED[followed], ", ".join(flipped) or "—"
        rows.append(dict(zip(names, row, strict=True)))
    return rows


def unfinished(results: Results) -> list[TextRow]:
    """Missing runs are counted, of others each is named."""
    left = results.runs[results.runs["status"] != "finished"]
    missing = left["status"] == "missing"
    rows = [
        {"Run": str(run), "Status": row["status"], "Reason": row["reason"] or "—"}
        for run, row in left[~missing].sort_index().iterrows()
    ]
    none = {"Run": f"{missing.sum()} runs", "Status": "missing", "Reason": "no record"}
    return rows + ([none] if missing.any() else [])


def hyperparameters(params: Params, results: Results) -> list[TextRow]:
    """The hyperparameters of each cell of the study's tables, and where each has them from."""
    plan, untuned = results.plan, search.untuned(results)
    study = params.named_study(plan.study)
    best = load_best_hyperparameters(study.best_hyperparameters, plan.study)
    protocols: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for table in plan.tables.values():
        for cell in table.cells:
            values = plan.runs[next(iter(cell.runs.values()))].hyperparameters
            place = cell.method, cell.buffer, cell.protocol
            benchmark = params.benchmarks[table.benchmark]
            as_set = benchmark.hyperparameters(*place)
            searched = best.get((table.benchmark, *place))
            source = f"variant {table.experiment}.{cell.variant}"
            if searched is not None and values == as_set.changed(searched):
                source = "search"
            elif values == as_set:
                source = "params.yaml"
            if name := untuned.get(key_of(table.benchmark, table.paper_source, cell)):
                source += f"; untuned: {name}"
            title = METHODS[cell.method].title
            row = table.benchmark, title, str(cell.buffer or "—"), values.text, source
            protocols[row].append(PROTOCOL_TITLES[cell.protocol])
    names = "Benchmark", "Method", "Buffer", "Hyperparameters", "From"
    return [
        dict(zip(names, row, strict=True)) | {"Protocol": ", ".join(dict.fromkeys(of))}
        for row, of in protocols.items()
    ]


def _fingerprint(params: Params, name: str, split: str, value: str | None) -> str:
    """A fingerprint, and whether it is that of the official images."""
    if value is None:
        return NOT_RECORDED
    entry, size = origin.of_dataset(params.datasets[name]).entry, params.datasets[name].size
    official = entry.fingerprints_at(size).get(split) if isinstance(entry, ImagesEntry) else None
    if official is None:
        return f"{value} (no official one to compare with)"
    return f"{value} (official)" if value == official else f"{value} (NOT the official {official})"


def _data(params: Params, results: Results) -> list[TextRow]:
    """The images of the benchmarks: whose they are, and the fingerprints that records have."""
    said = results.runs["provenance"].map(lambda of: of.get("inputs", {}))
    data = said.index.map(lambda run: results.plan.runs[run].data)
    rows = []
    for name in _data_sets(params, results.plan):
        whose = origin.of_dataset(params.datasets[name])
        texts = {"Data set": name, "What": whose.title, "Licence": whose.licence or NOT_RECORDED}
        for split in ("train", "test"):
            values = said[data == name].map(lambda of, key=f"{split}_fingerprint": of.get(key))
            shown = [
                _fingerprint(params, name, split, value) for value in sorted(set(values.dropna()))
            ]
            texts[f"Fingerprint, {split}"] = "; ".join(shown) or NOT_RECORDED
        rows.append(texts)
    return rows


def _data_sets(params: Params, plan: Plan) -> list[str]:
    """The data sets of a study's runs, and those that its sources were trained on."""
    trained_on = (params.sources[name].data for name in plan.sources)
    return list(dict.fromkeys([*plan.data, *filter(None, trained_on)]))


def _networks(params: Params, plan: Plan) -> list[TextRow]:
    """The networks that runs start from, as their files say; no tensor is read."""
    rows = []
    for name in plan.sources:
        path, source = files.checkpoint_file(name), params.sources[name]
        about: dict[str, Any] = {}
        problem = "" if path.exists() else f"no {path}: twf pretrain train {name}"
        try:
            file = path if path.exists() else source.weights or path  # that it will be made from
            with safe_open(file, framework="numpy") as opened:
                about = json.loads((opened.metadata() or {})["about"])
        except (SafetensorError, OSError, KeyError, ValueError):
            problem = problem or f"cannot be read: twf pretrain train {name}"
        accuracy, seconds = about.get("test_accuracy"), about.get("seconds")
        trained = about.get("data_fingerprint")
        recipe = about.get("pretraining") or {}
        said = [about.get("weights"), *(f"{key}={value}" for key, value in recipe.items())]
        rows.append(
            {
                "Source": name,
                "Accuracy": "not measured" if accuracy is None else f"{accuracy:.2f} %",
                "Recipe": " ".join(filter(None, said)) or NOT_RECORDED,
                "Training images": _fingerprint(params, source.data, "train", trained)
                if source.data
                else NOT_RECORDED,
                "Hours": NOT_RECORDED if seconds is None else f"{seconds / 3600:.3f}",
                "SHA-256 of the file": problem or files.sha256(path),
            }
        )
    return rows


def _said(results: Results) -> list[TextRow]:
    """Where the records come from: each value, and how many runs have it."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in show.rows(results.runs[results.runs["provenance"].map(bool)]):
        said, method = row["provenance"], METHODS[row["method"]].title
        code = said["code"]
        counts["Code", f"twf {code['version']}", f"commit {code['commit'] or 'unknown'}"] += 1
        counts["Method", method, str(code.get("method_hash"))] += 1
        for name, value in said.get("inputs", {}).items():
            place = row["source"] if name.startswith("checkpoint") else row["benchmark"]
            counts["Input", f"{place}, {name.replace('_', ' ')}", str(value)] += 1
        counts.update(("Version", name, str(value)) for name, value in said["versions"].items())
        counts["Precision", "products and convolutions", row["precision"] or NOT_RECORDED] += 1
        counts["Execution", "steps", str(said.get("execution", NOT_RECORDED))] += 1
    names = "Of", "What", "Value"
    return [
        dict(zip(names, key, strict=True)) | {"Runs": str(count)}
        for key, count in sorted(counts.items())
    ]


def write(params: Params, results: Results, agreement: list[str]) -> list[Section]:
    """Write the reproducibility statement of a study, as Markdown; its `sections`."""
    plan = results.plan
    said = filter(None, results.runs["provenance"])
    commits = sorted({of["code"]["commit"] or "" for of in said})
    # They stand in a command to be copied, so nothing else passes for a commit.
    clean = [commit for commit in commits if re.fullmatch(r"[0-9a-f]{7,64}", commit)]
    whose = [origin.of_dataset(params.datasets[name]) for name in _data_sets(params, plan)]
    weights = (params.sources[name].weights for name in plan.sources)
    whose += [origin.of_weights(str(file)) for file in weights if file is not None]
    told = sections(params, results)
    values = {
        "plan": plan,
        "facts": facts(results),
        "agreement": agreement,
        "sections": told,
        "citations": list(dict.fromkeys(of.citation for of in whose if of.citation)),
        "commits": clean,
        "no_commits": [commit for commit in commits if commit not in clean],
        "report": str(files.report_file(plan.study)),
    }
    show.fill("reproducibility.md.j2", values, files.statement_file(plan.study))
    return told
