"""The documentation against the code: pages that must be there, names and links that must hold."""

from __future__ import annotations

import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np
import pytest
from benchmarks import corners, floors
from numpy.typing import NDArray
from project import PROJECT, kept

from twf.files import figure_file, table_file
from twf.results import cells, contrasts, figures, show, statistics
from twf.results.frame import Results
from twf.results.paper import central, claim_tests, comparison, gains, order
from twf.results.paper.claims import CLAIMS
from twf.results.printed import PLACE, CellKey
from twf.study import expand, reading
from twf.study.choices import CHOICES
from twf.study.methods import METHODS
from twf.study.params import PROTOCOLS
from twf.study.switches import SWITCHES

METHOD_PAGES = PROJECT / "docs" / "methods"
PAGES = [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").glob("**/*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in addresses."""
    titles = re.findall(r"^#+ (.*)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_relative_links_point_to_files_and_headings(page):
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(PROJECT)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.relative_to(PROJECT)} links to {link}"


same_matplotlib = pytest.mark.skipif(
    f"matplotlib=={matplotlib.__version__}\n" not in (PROJECT / "constraints.txt").read_text(),
    reason="another matplotlib draws it a little differently",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with all records that are in git."""
    folder = tmp_path_factory.mktemp("records")
    for path in kept("results"):
        here = folder / path.relative_to(PROJECT)
        here.parent.mkdir(parents=True, exist_ok=True)
        here.symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def overnight(folder) -> Results:
    """The runs of the study `overnight` in it."""
    with contextlib.chdir(folder):
        return runs_of("overnight")


@pytest.fixture
def recorded(folder, overnight, monkeypatch) -> Results:
    """The same, where the working folder has the records."""
    monkeypatch.chdir(folder)
    return overnight


def runs_of(study: str) -> Results:
    """The runs of a study with the records of the working folder."""
    plan = expand(reading.load(PROJECT / "params.yaml"), study)
    return Results.of_records(plan, plan.runs)


def texts_of_gains(results: Results, name: str) -> list[dict[str, str]]:
    """The gains in one of the tables, as text."""
    table = results.plan.tables[name]
    found = gains.of_tables(results, cells.of_tables(results, [table]))
    return gains.text_rows(table, found)


@pytest.mark.parametrize("name", ["main.split-cifar10", "main.split-cifar100"])
def test_the_measured_tables_are_those_of_the_records_in_git(recorded, name):
    table = recorded.plan.tables[name]
    cells.write(recorded, [table])
    made = table_file(recorded.plan.study, table.name, "md").read_text()
    text = (PROJECT / "docs/measured.md").read_text(encoding="utf-8")
    assert "".join(re.findall(r"^\|.*\n", made, flags=re.M)) in text


def test_the_measured_gains_are_those_of_the_records_in_git(recorded):
    made = show.markdown_table(texts_of_gains(recorded, "ablation.split-cifar10"))
    assert made in (PROJECT / "docs/measured.md").read_text(encoding="utf-8")


def test_the_order_of_methods_in_the_findings_is_that_of_the_records_in_git(recorded):
    ranked = order.compare(comparison.compare(reading.load(PROJECT / "params.yaml"), recorded))
    text = " ".join((PROJECT / "docs/findings.md").read_text(encoding="utf-8").split())
    assert ranked["n_methods"].unique() == [9] and ranked["buffer_n_methods"].unique() == [6]
    assert f"at least {ranked['tau'].min():.2f} over nine methods" in text
    least = ranked.loc[ranked["buffer_tau"].idxmin()]
    assert (least["benchmark"], least["protocol"]) == ("split-cifar10", "task-il")
    assert f"at least {least['buffer_tau']:.2f}, in Task-IL on Split CIFAR-10," in text


def test_the_measured_effects_of_switches_are_those_of_the_records_in_git(recorded):
    page = (PROJECT / "docs/measured.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("\n### What the differences between paper and code do\n")
    text = " ".join(rest.partition("\n#")[0].split())
    rows = re.findall(r"\| (F\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|", text)
    others = dict.fromkeys(PROTOCOLS, 0.0)  # the largest change by a switch without a row
    for entry in texts_of_gains(recorded, "fidelity.split-cifar10"):
        title, change = entry.values()
        switch = re.search(r"F\d+", title)[0]
        (name,) = {
            run.rpartition(".")[0]
            for run in recorded.finished.index
            if run.startswith("split-cifar10.") and f".{switch.lower()}." in run
        }
        base = name.removesuffix(f".{switch.lower()}")
        found = [
            statistics.student(by_seed(recorded, name, of) - by_seed(recorded, base, of))
            for of in PROTOCOLS
        ]
        mixed = change.rpartition(")")[2]  # of several precisions
        row = (switch, *(said(of) + mixed for of in found))
        if row not in rows:
            assert not any(switch == of for of, *_ in rows), row
            for protocol, of in zip(PROTOCOLS, found, strict=True):
                low, high = of.ends()
                assert low < 0 < high
                others[protocol] = max(others[protocol], abs(float(of.mean)))
    assert (
        "at most {:.2f} points in Class-IL and {:.2f} in Task-IL".format(*others.values()) in text
    )


def by_seed(results: Results, name: str, protocol: str) -> NDArray[np.float64]:
    """The final average accuracy of the three runs whose names begin so."""
    return np.array([results.scores.loc[(f"{name}.s{seed}", protocol), "faa"] for seed in range(3)])


def said(found: statistics.Estimate, more: str = "") -> str:
    """A difference as the tables of docs/measured.md have it."""
    ends = show.interval(*map(float, found.ends()), "+")
    return f"{show.number(float(found.mean), '+')} ({ends}{more})"


def test_the_central_questions_are_answered_by_the_records_in_git(recorded):
    """But for how the intervals are made, seeds and caveats, which the text says once."""
    texts = central.text_rows(central.of_results(recorded))
    rows = [{name: row[name] for name in list(row)[:6]} for row in texts]
    made = show.markdown_table(rows)
    assert made in (PROJECT / "docs/findings.md").read_text(encoding="utf-8")


def test_the_probes_in_the_findings_are_those_of_the_records_in_git(recorded):
    found = {
        key.tasks: fmean(of_key.values())
        for key, of_key in claim_tests.values_of(recorded).items()
        if key[2:5] == ("er", "", 500)
        and (key.quantity, key.layer) == ("nearest_neighbours", "Layer 4")
    }
    text = " ".join((PROJECT / "docs/findings.md").read_text(encoding="utf-8").split())
    said = f"{found[0]:.0f} % accuracy before training, and still {found[5]:.0f} % after five"
    assert said in text


PLANNED = {
    "Split CIFAR-10, width 16": "corners-w16",
    "Split CIFAR-100, width 16": "corners-w16-cifar100",
    "Split CIFAR-10, width 64": "corners-5",
}


def test_the_shares_of_propagation_in_the_loss_are_those_of_the_records_in_git(recorded):
    """Of its distance alone, and with mask replay and diversity, over the epochs of three seeds."""
    text = " ".join((PROJECT / "docs/findings.md").read_text(encoding="utf-8").split())
    for study, benchmark in (
        ("overnight", "split-cifar10"),
        ("overnight", "split-cifar100"),
        ("corners-5", "split-cifar10"),
    ):
        runs = runs_of(study).finished
        epochs = [
            (entry["loss"], dict(entry["terms"]))
            for seed in range(3)
            for entry in runs.loc[f"{benchmark}.twf.500.s{seed}", "history"]
        ]
        for terms in (["distance"], ["distance", "mask_replay", "diversity"]):
            of = [100 * sum(found[name] for name in terms) / loss for loss, found in epochs]
            assert re.search(rf"\b{min(of):.1f} to {max(of):.1f} %", text), (
                study,
                benchmark,
                terms,
            )


def table_of_the_plan() -> str:
    """What the plan asks, by setting; Welch's intervals where the variances are uneven."""
    rows: dict[str, dict[str, str]] = {}
    for setting, study in PLANNED.items():
        for row in central.of_results(runs_of(study)).to_dict("records"):
            if row["question"] in ("over-derpp", "over-er-ace") or not row["n"]:
                continue  # asked of the main tables, or without a record
            ends = ("low", "high") if np.isnan(row["welch_low"]) else ("welch_low", "welch_high")
            estimate = show.estimate(row["mean"], *(row[end] for end in ends))
            said = row["said"] if row["n"] > 1 else "one seed"
            rows.setdefault(row["statement"], {})[setting] = f"{estimate}: {said}"
    found = {setting for of in rows.values() for setting in of}
    empty = {setting: "—" for setting in PLANNED if setting in found}
    return show.markdown_table([{"Question": name} | empty | of for name, of in rows.items()])


def test_the_table_of_the_plan_is_that_of_its_records_in_git(recorded):
    assert table_of_the_plan() in (PROJECT / "docs/findings.md").read_text(encoding="utf-8")


def test_the_plan_is_answered_at_the_papers_width_by_its_records_in_git(recorded):
    answers = central.of_results(runs_of("corners-5")).set_index("question")
    answers = answers[answers["model"].str.startswith("two-way")]
    assert dict(answers["said"]) == {
        "propagation": "an effect",
        "propagation-f6": "undecided",
        "interaction": "undecided",
        "stream": "an effect",
        "stream-alone": "an effect",
    }
    for name in ("propagation", "propagation-f6"):
        assert answers.loc[name, "size"] == "below the paper's"
        assert answers.loc[name, "mean"] < 2
    page = (PROJECT / "docs/measured.md").read_text(encoding="utf-8")
    assert f"(their ratio is {answers['uneven'].max():.0f})" in page


@pytest.mark.parametrize("study", ["corners-w16", "corners-w16-cifar100"])
def test_the_plan_is_answered_by_its_records_in_git(recorded, study):
    """By the plan's rule; the intervals are held to them with all others in sentences."""
    answers = central.of_results(runs_of(study)).set_index("question")
    decides = answers.loc["propagation-f6"]
    found = statistics.Estimate(decides["mean"], decides["error"], decides["freedom"])
    low, high = map(float, found.ends(0.9))
    text = " ".join((PROJECT / "docs/measured.md").read_text(encoding="utf-8").split())
    text = text.replace("\N{MINUS SIGN}", "-")
    assert f"90 % interval of G(paper), which decides, is {low:.2f} to {high:.2f}" in text
    propagation = [
        (row.said, row.size) for row in answers.loc[["propagation", "propagation-f6"]].itertuples()
    ]
    assert propagation == [("undecided", "below the paper's")] * 2
    assert answers.loc["interaction", "said"] == "undecided"
    assert set(answers.loc[["stream", "stream-alone"], "said"]) == {"an effect"}


ARMS = {  # on Split CIFAR-100: the study that tried rates, the method, and its run at the best
    "TwF, F6 published": ("corners-w16-search", "twf", "twf.500"),
    "CL, F6 published": ("corners-w16-cl-search", "twf", "twf.500.cl"),
    "TwF, F6 paper": ("corners-w16-f6-search", "twf", "twf.500.f6"),
    "CL, F6 paper": ("corners-w16-cl-f6-search", "twf", "twf.500.cl-f6"),
    "DER++": ("corners-w16-search", "derpp", "derpp.500"),
    "ER": ("corners-w16-er-search", "er", None),
    "ER-ACE": ("corners-w16-er-search", "er-ace", None),
}


def held_out(study: str, method: str, tried: str = "lr") -> dict[float, float]:
    """The held-out Class-IL accuracy of each value that a study tried of a method; nan without."""
    results = runs_of(study)
    (searched,) = (cell for cell in results.plan.search if cell.method == method)
    runs = {getattr(of.hyperparameters, tried): (of.runs[0], "class-il") for of in searched.trials}
    return dict(zip(runs, results.scores["faa"].reindex(list(runs.values())), strict=True))


def table_of_rates() -> str:
    rows = []
    for title, (study, method, _) in ARMS.items():
        texts = [f"{faa:.2f}" if faa == faa else "—" for faa in held_out(study, method).values()]
        rows.append({"arm": title} | dict(zip(("1/3", "1", "3", "9"), texts, strict=True)))
    return show.markdown_table(rows)


def test_each_arm_on_split_cifar100_runs_at_the_best_of_its_rates(recorded):
    runs = runs_of("corners-w16-cifar100").plan.runs
    for study, method, run in ARMS.values():
        if run is not None:
            found = held_out(study, method)
            assert runs[f"split-cifar100.{run}.s0"].hyperparameters.lr == max(found, key=found.get)


@pytest.mark.parametrize("more", ["", "f6-"])
def test_the_weights_of_propagation_tried_are_those_of_the_trials_in_git(recorded, more):
    as_set = max(held_out(f"corners-w16-{more}search", "twf").values())  # at the best rate
    tried = held_out(f"corners-w16-{more}weights-search", "twf", "lambda_fp")
    ten, thirty, hundred = tried.values()
    text = " ".join((PROJECT / "docs/measured.md").read_text(encoding="utf-8").split())
    assert (
        f"{as_set:.2f} as set, {ten:.2f} times 10, {thirty:.2f} times 30 and {hundred:.2f} times "
        "100" in text
    )


def test_the_table_of_rates_is_that_of_the_trials_in_git(recorded):
    assert table_of_rates() in (PROJECT / "docs/measured.md").read_text(encoding="utf-8")


def table_of_networks() -> str:
    """The corners on Split CIFAR-100 by pretrained network and run, and what they differ by."""
    studies = {name: runs_of(name) for name in ("corners-w16-cifar100", "corners-w16-networks")}
    cells = {
        "TwF, F6 published": "",
        "CL, F6 published": "cl.",
        "TwF, F6 paper": "f6.",
        "CL, F6 paper": "cl-f6.",
    }
    rows = []
    for network, (study, seed) in enumerate(
        [*(("corners-w16-cifar100", seed) for seed in range(3)), *NETWORKS], start=-2
    ):
        names = {title: f"split-cifar100.twf.500.{of}s{seed}" for title, of in cells.items()}
        faa = studies[study].scores["faa"].reindex([(run, "class-il") for run in names.values()])
        on, off, on_paper, off_paper = faa
        differences = {
            "G(published)": on - off,
            "G(paper)": on_paper - off_paper,
            "S(on)": on - on_paper,
            "S(off)": off - off_paper,
        }
        if faa.isna().all():
            continue
        rows.append(
            {"pretrained with seed": str(max(network, 0)), "run's seed": str(seed)}
            | dict(zip(cells, map(show.number, faa), strict=True))
            | {name: show.number(of, "+") for name, of in differences.items()}
        )
    return show.markdown_table(rows)


NETWORKS = [("corners-w16-networks", 0), ("corners-w16-networks", 1)]  # pretrained with seeds 1, 2


def test_the_table_of_networks_is_that_of_the_records_in_git(recorded):
    assert table_of_networks() in (PROJECT / "docs/measured.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("study", PLANNED.values())
def test_the_table_of_the_corners_is_that_of_the_records_in_git(recorded, study):
    runs = runs_of(study)
    page = (PROJECT / "docs/measured.md").read_text(encoding="utf-8")
    cells = {
        "TwF, F6 published": "twf.500",
        "CL, F6 published": "twf.500.cl",
        "TwF, F6 paper": "twf.500.f6",
        "CL, F6 paper": "twf.500.cl-f6",
        "DER++": "derpp.500",
        "ER-ACE": "er-ace.500",
        "DER++ with the code's stream loss": "derpp.500.current",
        "DER++ with TwF's rate and weights": "derpp.500.replay",
        "DER++ with the code's stream loss, and TwF's rate and weights": "derpp.500.current-replay",
        "The same, with one replay batch": "derpp.500.batch",
        "The same, with one forward pass": "derpp.500.pass",
        "The same, with labels among the classes seen": "derpp.500.labels",
        "CL, all but the last stage frozen": "twf.500.cl-frozen-4",
        "CL, all but the classifier frozen": "twf.500.cl-frozen-5",
        "TwF, λ_FP times 10": "twf.500.x10",
        "TwF, λ_FP times 30": "twf.500.x30",
        "TwF, λ_FP times 100": "twf.500.x100",
    }
    for title, cell in cells.items():
        (benchmark,) = runs.runs["benchmark"].unique()
        names = [f"{benchmark}.{cell}.s{seed}" for seed in (0, 1, 2)]
        if not runs.finished.index.intersection(names).size:
            continue
        said = [
            ", ".join(
                f"{runs.scores.loc[(name, protocol), 'faa']:.2f}"
                for name in names
                if name in runs.finished.index
            )
            for protocol in PROTOCOLS
        ]
        assert f"\n| {title} | {' | '.join(said)} |" in page, title


def test_the_measured_effect_of_bfloat16_is_that_of_its_runs_in_git():
    text = (PROJECT / "benchmarks/results/precision.jsonl").read_text(encoding="utf-8")
    pairs: dict[Any, dict[str, float]] = defaultdict(dict)  # by cell, protocol and seed
    for row in map(json.loads, text.splitlines()):
        cell, _, seed = row["run"].rpartition(".")
        for protocol in PROTOCOLS:
            pairs[cell, protocol, seed][row["precision"]] = row[protocol]
    changes: dict[Any, list[float]] = defaultdict(list)
    for (cell, protocol, _), of in pairs.items():
        changes[cell, protocol].append(of["bf16"] - of["fp32"])
    largest = [max(abs(fmean(of)) for key, of in changes.items() if p in key) for p in PROTOCOLS]
    excluding = []
    for key, of in changes.items():
        low, high = statistics.student_interval(of) or (-np.inf, np.inf)
        excluding += [key] if low > 0 or high < 0 else []
    assert len(changes) == 10 and excluding == [("split-cifar10.joint", "class-il")]
    text = " ".join((PROJECT / "docs/measured.md").read_text(encoding="utf-8").split())
    assert "at most {:.2f} points in Class-IL and {:.2f} in Task-IL; of".format(*largest) in text


def both_protocols(results: Results) -> dict[CellKey, Mapping[int, float]]:
    """The final average accuracy of each cell by seed, under both protocols."""
    found = {}
    for place, members in results.by_place.groupby(PLACE):
        for protocol in PROTOCOLS:
            scores = results.scores.reindex([(run, protocol) for run in members["run"]])["faa"]
            of_key = dict(zip(members["seed"], scores, strict=True))
            key = CellKey(*place)._replace(protocol=protocol)
            found[key] = {seed: faa for seed, faa in of_key.items() if faa == faa}
    return found


@pytest.fixture(scope="module")
def intervals(folder, overnight) -> set[tuple[int, float, float, float]]:
    """Those of all differences between two cells, or of what was probed of them, and of claims.

    Claims also on one benchmark alone. Cells also of the studies `overnight-longer` and of the
    plan. Each with the decimals it is rounded to: the size of its mean, and its ends.
    """
    with contextlib.chdir(folder):
        others = {name: runs_of(name) for name in ("overnight-longer", *PLANNED.values())}
    values: dict[Any, Mapping[int, float]] = dict(claim_tests.values_of(overnight))
    of_cells = {key: of_key for key, of_key in values.items() if not key.layer}
    claimed = [values] + [
        {key: of_key for key, of_key in of_cells.items() if key.benchmark == benchmark}
        for benchmark in {key.benchmark for key in of_cells}
    ]
    evaluated = [claim_tests.evaluate(claim, each, {}) for claim in CLAIMS for each in claimed]
    for key, of_key in both_protocols(overnight).items():  # also where no table has one
        values.setdefault(key, of_key)
    groups: dict[Any, dict[CellKey, Mapping[int, float]]] = defaultdict(dict)
    for study, results in others.items():
        for key, of_key in both_protocols(results).items():
            groups[study, key.benchmark, key.protocol][key] = of_key
    for key, of_key in values.items():
        alike = key[6:] if key.layer else (key.benchmark, key.protocol)
        groups[alike][key] = of_key
    found = [(row.get("value"), row.get("low"), row.get("high")) for row in evaluated]
    for study in PLANNED.values():
        of_plan = central.of_results(others[study])
        of_plan = of_plan[of_plan["n"] > 1]
        for ends in (["low", "high"], ["welch_low", "welch_high"]):
            found += of_plan[["mean", *ends]].dropna().itertuples(index=False)
    for group in groups.values():
        for one, other in permutations(group, 2):
            if one.buffer and other.buffer and one.buffer != other.buffer:
                continue
            if group[one].keys() & group[other].keys():
                gain = contrasts.difference(group, one, other)
                found.append((gain.mean, gain.low, gain.high))
    return {
        (decimals, *(round(of, decimals) for of in (abs(mean), low, high)))
        for mean, low, high in found
        if low is not None
        for decimals in range(4)
    }


@pytest.mark.parametrize("page", ["README.md", "docs/findings.md", "docs/measured.md"])
def test_each_interval_in_sentences_is_one_of_the_records_in_git_behind_its_mean(intervals, page):
    text = re.sub(r"^ *\|.*\n", "", prose(PROJECT / page), flags=re.M)
    text = " ".join(text.replace("\N{MINUS SIGN}", "-").split())
    text = re.sub(r"\b(CIFAR-100?|[Bb]uffer \d+)\b", "", text)
    sought = [*re.finditer(r"\((?:[^()]*; )?([-+]?[\d.]+) to ([-+]?[\d.]+)[;)]", text)]
    assert sought
    wrong = []
    for found in sought:
        decimals = len(found[1].partition(".")[2])
        low, high = float(found[1]), float(found[2])
        said = text[max(found.start() - 90, 0) : found.start(1)]
        means = re.findall(r"(?<![\w.])[-+]?\d+(?:\.\d+)?", said)[-2:]
        if not {(decimals, abs(float(mean)), low, high) for mean in means} & intervals:
            wrong.append(said + found[0])
    assert not wrong


@same_matplotlib
@pytest.mark.parametrize(
    ("drawing", "figure"),
    [
        ("gains.svg", "differences.main.split-cifar10"),
        ("weights.svg", "weights.propagation.split-cifar10"),
    ],
)
def test_the_figures_of_the_findings_are_those_of_the_records_in_git(recorded, drawing, figure):
    """Else: `twf report overnight --partial`, then copy it from results/overnight/figures/."""
    (one,) = (of for of in figures.planned(recorded.plan) if of.name == figure)
    figures.write(recorded, [one])
    made = figure_file("overnight", figure, "svg").read_bytes()
    assert without_ids(made) == without_ids((PROJECT / "docs" / drawing).read_bytes())


@same_matplotlib
@pytest.mark.parametrize("module", [corners, floors])
def test_a_figure_over_several_files_is_that_of_what_is_in_git(module, monkeypatch):
    """Else: `python -m benchmarks.corners`, or `benchmarks.floors`."""
    monkeypatch.chdir(PROJECT)
    assert without_ids(module.drawn()) == without_ids((PROJECT / module.DRAWING).read_bytes())


def without_ids(svg: bytes) -> bytes:
    """A drawing without the names of its parts, which matplotlib hashes from what NumPy prints."""
    return re.sub(rb"\b[a-z][0-9a-f]{10}\b", b"", svg)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page_with_its_hyperparameters_and_switches(name):
    page = METHOD_PAGES / f"{name}.md"
    assert page.exists(), f"write docs/methods/{name}.md, like those of other methods"
    text = page.read_text(encoding="utf-8")
    _, _, section = text.partition("\n## Hyperparameters\n")
    keys = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0])) - {"paper", "published"}
    assert keys == set(METHODS[name].hyperparameters.model_fields)
    named = set(re.findall(r"\bF\d+\b", text))
    assert set(METHODS[name].switches) <= named


def test_the_index_has_every_method_in_order():
    index = (METHOD_PAGES / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| \[(.+)\]\((.+)\.md\) \|$", index, flags=re.M)
    assert rows == [(info.title, name, name) for name, info in METHODS.items()]


def test_the_table_of_switches_says_what_the_code_says():
    page = (PROJECT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (F\d+) \| (.+?) \| (.+?) \| (.+?) \| [^|]+ \|$", page, flags=re.M)
    escaped = {
        name: tuple(text.replace("|", r"\|") for text in (of.subject, of.paper, of.published))
        for name, of in SWITCHES.items()
    }
    assert {name: tuple(texts) for name, *texts in rows} == escaped


def test_the_table_of_choices_says_what_the_code_says():
    page = (PROJECT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("\n## Beyond switches\n")
    section, _, _ = rest.partition("\n## ")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", section, flags=re.M)[2:]
    assert rows == [(choice.subject, choice.paper, choice.here) for choice in CHOICES]


def test_every_row_of_the_table_of_faults_names_its_test():
    page = (PROJECT / "docs" / "trouble.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in re.findall(r"^\| (.+) \|$", page, flags=re.M)][2:]
    tests = (PROJECT / "tests/engines/test_faults.py").read_text(encoding="utf-8")
    assert rows and all(len(row) == 4 for row in rows)
    named = {row[-1].strip("`") for row in rows}
    assert named <= set(re.findall(r"^def (test_\w+)\(", tests, flags=re.M))
