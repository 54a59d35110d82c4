"""What a search for hyperparameters found: every trial, and the best trial of each cell."""

import json

import pandas as pd
import yaml

from twf.files import search_files, write_text
from twf.results import show
from twf.results.frame import Results
from twf.results.show import PROTOCOL_TITLES, TextRow, number
from twf.study.methods import METHODS

NOTE = (
    "Final average accuracy in per cent on training images that were held out, not on the test "
    "set; mean over seeds. As set: the hyperparameters of params.yaml, tried in the same way."
)
_CELL = ["benchmark", "cell"]


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
            states = results.runs["status"].loc[list(trial.runs.values())]
            faa = results.scores["faa"].reindex([(run, cell.protocol) for run in states.index])
            about = cell.benchmark, cell.name, cell.method, cell.buffer or 0, cell.protocol
            values = json.dumps(trial.hyperparameters.model_dump())
            as_set = trial.hyperparameters == cell.as_set
            counts = faa.count(), len(states), (states == "diverged").sum()
            rows.append((*about, values, as_set, *counts, faa.mean(), faa.std()))
    names = [*_CELL, "method", "buffer", "protocol", "hyperparameters", "as_set", "n", "n_planned"]
    columns = [*names, "n_diverged", "accuracy_mean", "accuracy_std"]
    frame = pd.DataFrame(rows, columns=columns)
    complete = frame[frame["n"] == frame["n_planned"]]
    ranked = complete.sort_values(["accuracy_mean", "as_set"], ascending=False, kind="stable")
    best = ranked.drop_duplicates(_CELL).index
    frame.insert(7, "best", frame.index.isin(best))
    return frame


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
            "Accuracy": number(row["accuracy_mean"] if row["n"] == row["n_planned"] else None),
        }
        for row in show.rows(tried[tried["best"] | tried["as_set"]])
    ]


def write(results: Results, tried: pd.DataFrame) -> None:
    """Write every one of `trials` as CSV, and the best as input of another study.

    That waits until the search is complete: with fewer records the other study must not take other
    values. It lacks a cell whose trials all have a run that diverged.
    """
    table, study = search_files(results.plan.study)
    write_text(table, tried.assign(buffer=show.null_buffer(tried)).to_csv(index=False))
    left = tried[tried["n"] + tried["n_diverged"] < tried["n_planned"]]
    if len(left):
        to_do, cells = len(left[_CELL].drop_duplicates()), len(results.plan.search)
        print(f"{study} is not written: {to_do} of {cells} cells have trials to do")
        return
    chosen = tried[tried["best"]].set_index(_CELL)["hyperparameters"].map(json.loads)
    best = [
        {"benchmark": cell.benchmark}
        | cell.model_dump(include={"method", "buffer", "protocol"})
        | {"hyperparameters": {name: chosen[at][name] for name in cell.named}}
        for cell in results.plan.search
        if (at := (cell.benchmark, cell.name)) in chosen.index
    ]
    mark = results.mark(results.plan.runs_of_searches())
    write_text(
        study,
        f"# Found by the searches of the study {results.plan.study}; input of another study's\n"
        f"# `best_hyperparameters`. {mark}\n{yaml.safe_dump(best, sort_keys=False)}",
    )
