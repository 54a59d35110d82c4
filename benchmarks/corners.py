"""Figure 1 of docs/findings.md: what propagation and the stream loss add, over all settings in git.

    python -m benchmarks.corners

writes docs/corners.svg from the records in git and from the runs of the authors' code in
`benchmarks/results/parity.jsonl`; nothing is trained.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pandas as pd

from benchmarks import command
from twf import files
from twf.results import statistics
from twf.results.figures import charts, frames, kinds
from twf.results.frame import Results
from twf.study import expand, reading

DRAWING = Path("docs/corners.svg")
PARITY = Path("benchmarks/results/parity.jsonl")
STUDIES = (  # those with such cells
    "overnight",
    "corners-w16",
    "corners-w16-cifar100",
    "overnight-longer",
    "corners-5",
)
TITLE = [
    "What propagation and the stream loss add to final average accuracy in Class-IL, buffer 500 "
    "(authors' code: 200)",
    "Mean over seeds and 95 % interval (float32: by the plan's model; width 64: Welch's). Shaded: "
    "±1 point.",
    "The paper's TwF minus {CL}, its row without propagation, is in both panels, as either may "
    "explain it.",
]


def measured() -> pd.DataFrame:
    """The frames of `frames.corners`, of each study and benchmark."""
    params = reading.load(files.PARAMS)
    found = [authors_code()]
    for study in STUDIES:
        plan = expand(params, study)
        results = Results.of_records(plan, plan.runs)
        seen = set()
        for table in plan.tables.values():
            if "cl" in table.variants and table.benchmark not in seen:
                seen.add(table.benchmark)
                one = frames.corners(results, table)
                if params.studies[study].precision == "fp32":  # else as `overnight`
                    one["setting"] += ",\nfloat32"
                found.append(one)
    whole = pd.concat(found, ignore_index=True)
    return whole[whole["n"] > 0]


def authors_code() -> pd.DataFrame:
    """Propagation's gain in the authors' code, TwF minus its row CL by seed, at a small setting."""
    runs: dict[str, dict[int, float]] = defaultdict(dict)
    for row in map(json.loads, PARITY.read_text(encoding="utf-8").splitlines()):
        if row["code"] == "published" and row["method"] in ("twf", "twf.cl"):
            runs[row["method"]][row["seed"]] = statistics.student(row["class-il"]).mean
            buffer = row["setting"]["buffer"]
    seeds = sorted(runs["twf"].keys() & runs["twf.cl"].keys())
    gain = statistics.student([runs["twf"][seed] - runs["twf.cl"][seed] for seed in seeds])
    low, high = gain.ends()
    return pd.DataFrame(
        [
            {
                "benchmark": reading.load(files.PARAMS).benchmarks["split-cifar10"].title,
                "buffer": buffer,
                "quantity": "propagation",
                "condition": frames.QUANTITIES["propagation"][1],
                "setting": "authors'\ncode, few\nimages",
                "compute": 0,
                "n": len(seeds),
                "mean": float(gain.mean),
                "low": float(low),
                "high": float(high),
            }
        ]
    )


def drawn() -> bytes:
    """The figure as SVG."""
    return kinds.as_svg(charts.corners, measured(), TITLE)


def main() -> None:
    """Draw the figure."""
    DRAWING.write_bytes(drawn())


if __name__ == "__main__":
    command(main)
