"""What runs cost, by the records in git: `results/costs.csv`, and the paper's tables on an H100.

    python -m benchmarks.hours

writes the first, for `twf plan STUDY --forecast`, and prints the second as Markdown, for
docs/speed.md; nothing is measured.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import gmean

from benchmarks import command
from twf import files
from twf.forecast import CL, KEY, kind
from twf.results.evidence import EVIDENCE
from twf.results.show import TextRow, markdown
from twf.study import expand, reading

H100 = Path(__file__).parent / "results/h100.json"
TABLES = {
    "1": ["main.split-cifar10"],
    "2": ["main.split-cifar100"],
    "4": ["ablation.split-cifar10", "ablation.split-cifar100"],
    "5": ["dissimilar.split-cifar100"],
}
SEEDS = 3
HOW = ("measured", "from its step alone", "from CPUs")
STEPS, TASKS = 50_000 / 32, 5  # of an epoch of all tasks on Split CIFAR-10


def records(folder: Path = EVIDENCE) -> pd.DataFrame:
    """All records in git."""
    frames = [pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))]
    return pd.concat([frame for frame in frames if "provenance" in frame], ignore_index=True)


def costs(records: pd.DataFrame) -> pd.DataFrame:
    """A row for each kind of run and device: `KEY`, `device`, `runs`, `seconds`.

    `records` have the columns of `twf.results.record.SCHEMA`. `seconds` is the median over runs,
    but for trials of a search, of the time of one epoch of all tasks, evaluation included.
    """
    parameters = records["provenance"].map(lambda text: json.loads(text)["parameters"])
    epochs = parameters.map(lambda values: values["epochs"])
    own = zip(records["method"], parameters, strict=True)
    rows = records[["benchmark", "device"]].assign(
        method=[kind(method, values["hyperparameters"]) for method, values in own],
        width=parameters.map(lambda values: values["network"]["width"]),
        seconds=records["seconds"] / epochs,
    )
    whole = (records["status"] == "finished") & parameters.map(lambda v: v["held_out"] is None)
    grouped = rows[whole].groupby([*KEY, "device"])["seconds"]
    return grouped.agg(runs="size", seconds="median").round(2).reset_index()


def in_company(records: pd.DataFrame) -> pd.Series:
    """The card's milliseconds per step of each run, while all that began together were at work.

    That is the time of a run's step in company, divided by the number of runs.
    """
    window = records["seconds"].min()

    def step(history: Sequence[Mapping[str, float]]) -> float:
        ends = np.cumsum([0.0, *(epoch["seconds"] for epoch in history)])
        epochs = np.interp(window, ends, np.arange(len(ends)))
        return 1e3 * window / (epochs * STEPS / TASKS) / len(records)

    return records["history"].map(step)


def milliseconds(records: pd.DataFrame) -> dict[str, tuple[float, str]]:
    """The card's milliseconds per step on Split CIFAR-10 in company, and how each is known.

    Measured for the kinds of `corners-50`, six at once. For ER, its step alone times TwF's ratio of
    the two. For others, the time of a run on CPUs at width 16, scaled to the measured kinds.
    """
    long = records[records["study"] == "corners-50"]
    values = long["provenance"].map(lambda text: json.loads(text)["parameters"])
    kinds = [kind(v["method"], v["hyperparameters"]) for v in values]
    measured = in_company(long).groupby(kinds).mean().to_dict()
    rows = json.loads(H100.read_text(encoding="utf-8"))["rows"]
    alone = {r["method"]: r["milliseconds"] for r in rows if r.get("execution") == "captured"}
    cpu = costs(records[records["study"] == "overnight"])
    cpu = cpu[(cpu["benchmark"] == "split-cifar10") & cpu["device"].str.startswith("Intel")]
    seconds = cpu.set_index("method")["seconds"].to_dict()
    # there, the runs without propagation followed the initialization too, in float32
    scale = gmean([measured[m] / seconds[m] for m in measured if m in seconds and m != CL])
    known = {name: (seconds[name] * scale, HOW[2]) for name in seconds}
    known["er"] = (alone["er"] * measured["twf"] / alone["twf"], HOW[1])
    return known | {name: (value, HOW[0]) for name, value in measured.items()}


def tables(known: dict[str, tuple[float, str]]) -> tuple[list[TextRow], list[TextRow]]:
    """Milliseconds by method, and the hours of the card by table and by how they are known.

    A run on Split CIFAR-100 passes as many images as one on Split CIFAR-10, in half the steps of
    twice the batch: it is taken to cost as much, which is an upper bound. Split CUB-200 (Table 3,
    and a part of Table 4) is left out, as nothing says what a step of it takes.
    """
    plan = expand(reading.load(files.PARAMS), "paper")
    methods = [
        {"Method": name, "ms of the card a step": f"{value:.1f}", "Known": how}
        for name, (value, how) in sorted(known.items(), key=lambda item: item[1][0])
    ]
    rows = []
    for number, names in TABLES.items():
        runs = [plan.runs[run] for name in names for run in plan.runs_of(plan.tables[name])]
        hours = dict.fromkeys(HOW, 0.0)
        for run in runs:
            value, how = known[kind(run.method, vars(run.hyperparameters))]
            hours[how] += SEEDS * run.epochs * STEPS * value / 3.6e6
        whole = f"{sum(hours.values()):.1f}"
        row = {"Table": number, "Runs": str(SEEDS * len(runs)), "Hours": whole}
        rows.append(row | {f"Hours {how}": f"{hours[how]:.1f}" for how in HOW})
    return methods, rows


def main() -> None:
    """Write `results/costs.csv`, and print what an H100 would take."""
    frame = records()
    costs(frame).to_csv(files.COSTS, index=False)
    methods, hours = tables(milliseconds(frame))
    print(*(markdown(rows) for rows in (methods, hours)), sep="\n")


if __name__ == "__main__":
    command(main)
