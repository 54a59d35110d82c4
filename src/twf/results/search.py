"""What a search for hyperparameters found: every trial, and the best trial of each cell."""

import json

import pandas as pd
import yaml

from twf.files import atomic, search_files
from twf.results import show
from twf.results.frame import Results, key_of
from twf.results.printed import CellKey
from twf.results.show import PROTOCOL_TITLES, TextRow, number
from twf.study import Plan
from twf.study.methods import METHODS

NOTE = (
    "Final average accuracy in per cent on training images that were held out, not on the test "
    "set; mean over seeds. As set: the hyperparameters of params.yaml, tried in the same way."
)
_CELL = ["benchmark", "cell"]
_COLUMNS = [
    *(*_CELL, "method", "buffer", "protocol", "hyperparameters", "as_set", "n", "n_planned"),
    *("n_diverged", "accuracy_mean", "accuracy_std"),
]


def trials(results: Results) -> pd.DataFrame:
    """A row per trial of each searched cell, in the order of the plan.

    `benchmark`, `cell`, `method`, `buffer` (0 without), `protocol`, `hyperparameters` (JSON);
    `as_set` where they are those of params.yaml; `n` finished of `n_planned` runs, `n_diverged`;
    `accuracy_mean` and `accuracy_std`, per cent, final average accuracy on held-out images. `best`
    is the highest mean of trials without an unfinished run: of equals the one as set, or the first.
    """
    rows = []
    for cell in results.plan.search:
        for trial in cell.trials:
            runs = results.runs["status"].loc[list(trial.runs.values())]
            place = cell.model_dump(include={"benchmark", "method", "protocol"})
            faa = results.scores["faa"].reindex([(run, cell.protocol) for run in runs.index])
            rows.append(
                place
                | {"buffer": cell.buffer or 0, "cell": cell.name}
                | {"hyperparameters": json.dumps(trial.hyperparameters.model_dump())}
                | {"as_set": trial.hyperparameters == cell.as_set, "n": int(faa.count())}
                | {"n_planned": len(runs), "n_diverged": int((runs == "diverged").sum())}
                | {"accuracy_mean": faa.mean(), "accuracy_std": faa.std()}
            )
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    complete = frame[frame["n"] == frame["n_planned"]]
    ranked = complete.sort_values(["accuracy_mean", "as_set"], ascending=False, kind="stable")
    best = ranked.drop_duplicates(_CELL).index
    frame.insert(7, "best", frame.index.isin(best))
    return frame


def untuned(plan: Plan) -> dict[CellKey, str]:
    """The cells with a hyperparameter that the paper does not print and no search has chosen.

    Each with the method's and the hyperparameter's name. The search is another study's, whose
    `best_hyperparameters` this one takes.
    """
    return {
        key_of(table.benchmark, table.paper_source, cell): f"{name} of {METHODS[cell.method].title}"
        for table in plan.tables.values()
        for cell in table.cells
        if (name := METHODS[cell.method].not_printed) and name not in cell.searched
    }


def text_rows(tried: pd.DataFrame) -> list[TextRow]:
    """The best trial of each cell and the one as set, as text, of the frame of `trials`."""
    return [
        {
            "Benchmark": row["benchmark"],
            "Method": METHODS[row["method"]].title,
            "Buffer": str(row["buffer"] or "—"),
            "Protocol": PROTOCOL_TITLES[row["protocol"]],
            "Trial": ", ".join(["best"] * row["best"] + ["as set"] * row["as_set"]),
            "Hyperparameters": " ".join(
                f"{key}={value:g}" for key, value in json.loads(row["hyperparameters"]).items()
            ),
            "Accuracy": number(row["accuracy_mean"]),
        }
        for row in show.rows(tried[tried["best"] | tried["as_set"]])
    ]


def write(results: Results, tried: pd.DataFrame) -> None:
    """Write every one of `trials` as CSV, and the best as input of another study.

    That input waits until the search is complete: fewer records than it was made from, as beside
    another checkpoint, must not change what the other study takes.
    """
    table, study = search_files(results.plan.study)
    with atomic(table) as partial:
        tried.assign(buffer=show.null_buffer(tried)).to_csv(partial, index=False)
    left = tried[tried["n"] + tried["n_diverged"] < tried["n_planned"]]
    if len(left):
        to_do, cells = len(left[_CELL].drop_duplicates()), len(results.plan.search)
        print(f"{study} is not written: {to_do} of {cells} cells have trials to do")
        return
    best = []
    for cell in results.plan.search:
        own = tried[(tried["benchmark"] == cell.benchmark) & (tried["cell"] == cell.name)]
        if not own["best"].any():
            print(
                f"{study} has nothing for {cell.name}: each of its trials has a run that diverged"
            )
        for values in own[own["best"]]["hyperparameters"].map(json.loads):
            place = cell.model_dump(include={"method", "buffer", "protocol"})
            named = {name: values[name] for name in cell.named}
            best.append({"benchmark": cell.benchmark} | place | {"hyperparameters": named})
    with atomic(study) as partial:
        partial.write_text(
            f"# Found by the searches of the study {results.plan.study}; input of another study's\n"
            f"# `best_hyperparameters`.\n{yaml.safe_dump(best, sort_keys=False)}",
            encoding="utf-8",
        )
