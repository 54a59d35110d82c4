"""The paper's printed cells beside a study's: difference, verdict, command and cost of each.

The paper prints no spread and no number of seeds, so the verdict rests on our seeds alone. It
compares Student's 95 % interval of our mean FAA with the paper's value and a margin around it
(`verdict`).

The margin is `MARGIN`, one point to each side. It has to be wide enough for what the paper leaves
out (its value may be one run's), and narrow enough to mean something: its claims rest on gains of
2.8 to 4.8 points, so that two cells, each equivalent to the paper's, keep such an order. Some 5 %
of intervals miss their true mean: of 144 verdicts, expect a few to be wrong.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import pandas as pd
import pyarrow as pa

from twf.files import comparison_file, record_file
from twf.results import cells, show
from twf.results.frame import Results
from twf.results.paper import order
from twf.results.printed import PLACE, PRINTED_VARIANTS, printed
from twf.results.show import (
    PROTOCOL_TITLES,
    Markdown,
    Section,
    TextRow,
    in_parentheses,
    number,
)
from twf.study import expand
from twf.study.methods import METHODS
from twf.study.params import Params

MARGIN = 1.0  # points of FAA to each side of the paper's value

VERDICTS = ("equivalent", "higher", "lower", "undecided", "reduced", "not run")

SCHEMA = pa.schema(
    [
        ("printed_table", pa.int64()),  # of the paper, from 1
        *map(cells.SCHEMA.field, PLACE),  # the variant is of Table 4; null elsewhere
        # All in per cent; null where there is none.
        *map(cells.SCHEMA.field, ("printed_faa", "printed_ff")),
        *map(cells.SCHEMA.field, ("n", "n_planned", "n_diverged", "precisions")),
        *map(cells.SCHEMA.field, ("faa_mean", "faa_std", "faa_low", "faa_high")),
        *map(cells.SCHEMA.field, ("ff_mean", "ff_low", "ff_high")),
        ("faa_difference", pa.float64()),  # ours minus the paper's
        ("ff_difference", pa.float64()),
        ("verdict", pa.string()),  # one of VERDICTS, on FAA
        ("gpu_hours", pa.float64()),  # of its runs on CUDA devices; null without such a run
        ("devices", pa.list_(pa.string())),  # these devices
        ("study", pa.string()),  # whose runs make the cell; null where no study has it
        ("command", pa.string()),  # makes these runs
        ("runs", pa.list_(pa.string())),  # all of them, by seed
    ]
)
COMPARED = show.Compared(
    comparison_file,
    SCHEMA,
    "The paper's numbers beside ours: final average accuracy (FAA), final forgetting in "
    "parentheses, in per cent; Student's 95 % interval of our mean. The verdict is on FAA: "
    f"equivalent where the interval lies within {MARGIN:g} points of the paper's number, higher or "
    "lower where it lies entirely above or below these, undecided otherwise, with a single seed or "
    "where a run diverged, and reduced where the study scales the benchmark down. "
    f"{show.MIXED}: of runs that differ in precision.",
)


def verdict(row: Any) -> str:
    """One of `VERDICTS` for a cell's mean FAA."""
    if row["n"] + row["n_diverged"] == 0:
        return "not run"
    if row["reduced"]:  # a difference is to be expected
        return "reduced"
    if row["n_diverged"] or pd.isna(row["faa_low"]):  # or one seed
        return "undecided"
    low, high = (row[end] - row["printed_faa"] for end in ("faa_low", "faa_high"))
    if max(abs(low), abs(high)) <= MARGIN:
        return "equivalent"
    if low > MARGIN:
        return "higher"
    return "lower" if high < -MARGIN else "undecided"


def compare(params: Params, results: Results) -> pd.DataFrame:
    """A row of `SCHEMA` for each printed cell, in the order of the paper's tables.

    A cell that the study does not have is not run; its command is that of the first other study of
    params.yaml that has it with the paper's hyperparameters. A run that serves several cells counts
    in the cost of each.
    """
    own = results.plan.study
    planned = results.by_place
    ended = planned.join(results.runs[["seconds", "device", "on_gpu", "ended"]], on="run")
    on_gpu = ended[ended["on_gpu"].astype(bool) & ended["ended"].astype(bool)].groupby(PLACE)
    ours = cells.means(planned, PLACE).drop(columns="runs")
    ours["gpu_hours"] = on_gpu["seconds"].sum() / 3600
    ours["devices"] = on_gpu["device"].agg(lambda of: sorted(set(of)))
    ours["study"], ours["runs"] = own, planned.groupby(PLACE)["run"].agg(list)
    frame = printed().merge(ours.reset_index(), on=PLACE, how="left")
    elsewhere = _elsewhere(params, own)
    keys = frame[PLACE].itertuples(index=False, name=None)
    others = pd.DataFrame([elsewhere.get(key, ("", [])) for key in keys], columns=["study", "runs"])
    for name in others:
        frame[name] = frame[name].combine_first(others[name])
    for name in ("devices", "precisions"):
        frame[name] = cells.lists(frame[name])
    frame["n_planned"] = frame["runs"].map(len)
    frame[["n", "n_diverged"]] = frame[["n", "n_diverged"]].fillna(0).astype(int)
    frame["faa_difference"] = frame["faa_mean"] - frame["printed_faa"]
    frame["ff_difference"] = frame["ff_mean"] - frame["printed_ff"]
    scaled = {table.benchmark for table in results.plan.tables.values() if table.reduced}
    frame["reduced"] = frame["benchmark"].isin(scaled) & (frame["study"] == own)
    frame["verdict"] = frame.apply(verdict, axis=1)
    frame["command"] = [
        f"snakemake --cores all {' '.join(str(record_file(study, run)) for run in runs)}"
        if study
        else ""
        for study, runs in zip(frame["study"], frame["runs"], strict=True)
    ]
    return frame[SCHEMA.names]


def _elsewhere(params: Params, own: str) -> dict[Any, tuple[str, list[str]]]:
    """The cells of other studies: the first that has one, and its runs."""
    first: dict[Any, tuple[str, list[str]]] = {}
    for name, study in params.studies.items():
        if name != own and study.best_hyperparameters is None and not study.scale:
            planned = Results.planned(expand(params, name)).by_place
            for key, runs in planned.groupby(PLACE)["run"]:
                first.setdefault(key, (name, list(runs)))
    return first


def write(params: Params, results: Results) -> None:
    """Write the comparison, and `order` of it, from a study's collected records."""
    study, frame = results.plan.study, compare(params, results)
    ranked = order.compare(frame)
    used = results.runs.loc[sorted(set(chain(*frame["runs"][frame["study"] == study])))]
    used = used[used["on_gpu"].astype(bool) & used["ended"].astype(bool)]
    hours = used.groupby("device")["seconds"].sum() / 3600
    counts = frame["verdict"].value_counts()
    rows = [
        text | {"Command": Markdown(f"`{command}`" if command else "—")}
        for text, command in zip(text_rows(frame), frame["command"], strict=True)
    ]
    sections = [
        Section("Verdicts", [{"Verdict": v, "Numbers": str(counts.get(v, 0))} for v in VERDICTS]),
        Section(
            "GPU hours",
            [{"Device": str(name), "Hours": number(of)} for name, of in hours.items()],
            "A run that serves several numbers is counted once, and in the row of each.",
        ),
        Section("The order of methods", order.text_rows(ranked), order.COMPARED.note),
    ]
    for table, places in frame.groupby("printed_table").indices.items():
        sections.append(Section(f"Table {table} of the paper", [rows[i] for i in places]))
    COMPARED.write(results.plan, frame, sections)
    order.COMPARED.write(results.plan, ranked, None)


def text_rows(frame: pd.DataFrame) -> list[TextRow]:
    """The rows as text, by the heading of each column."""
    return [_text_row(row) for row in show.rows(frame)]


def _text_row(row: Any) -> TextRow:
    terms = PRINTED_VARIANTS.get(row["variant"], "").split()  # cl=on fp=on aux=off
    on = [term.removesuffix("=on").upper() for term in terms if term.endswith("=on")]
    beside = {name: in_parentheses(row[name]) for name in ("printed_ff", "ff_mean")}
    return {
        "Cell": METHODS[row["method"]].title + (f", {' + '.join(on)}" if on else ""),
        "Benchmark": f"{row['benchmark']} from {row['source']}",
        "Protocol": PROTOCOL_TITLES[row["protocol"]],
        "Buffer": str(row["buffer"] or "—"),
        "Paper": f"{number(row['printed_faa'])} {beside['printed_ff']}".rstrip(),
        "Ours": f"{number(row['faa_mean'])} {beside['ff_mean']}".rstrip()
        + show.mixed(row["precisions"]),
        "Interval": show.interval(row["faa_low"], row["faa_high"]),
        "n": f"{row['n']}/{row['n_planned']}" + show.diverged(row["n_diverged"]),
        "Difference": number(row["faa_difference"], "+"),
        "Verdict": row["verdict"],
        "GPU hours": number(row["gpu_hours"]),
        "Command": row["command"] or "—",
    }
