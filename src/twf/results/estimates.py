"""The table of estimates of a study: every mean, difference and verdict, computed once.

`results/STUDY/estimates.parquet` is long, a row per estimate. Tables, figures, the report and DVC's
metrics render it, and compute none of it:

    cell     a mean over the seeds of a cell of one of the study's tables, a row per quantity, with
             Student's interval. Beside a number of the paper it has a verdict (`agreement`).
    gain     a cell minus another one of its table, in final average accuracy: paired by seed
             between variants of a method, Welch's between methods. In a table of methods, TwF
             minus each other one; in a table of variants, each variant minus its method as
             params.yaml has it.
    claim    the least of the differences that a claim of the paper says are positive.
    order    Kendall's rank correlation of our means with the paper's numbers in a column of its
             tables, over the methods with a buffer.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from twf.errors import UserError, lookup
from twf.files import atomic, estimates_file, record_file, runs_file, write_text
from twf.learning.evaluation import metrics
from twf.results import record, show, statistics
from twf.results.frame import SCORES, Results, column
from twf.results.paper import claims
from twf.results.printed import PLACE, CellKey, printed, printed_keys
from twf.results.record import PROBED
from twf.study import Table
from twf.study.params import PROTOCOLS

REFERENCE = "twf"  # whose gains over other methods are the paper's subject
AGREEMENT = 1.0  # points of accuracy to each side of the paper's number that count as agreement
LEAST = 3  # methods in a column whose order is compared
SAMPLES = 10_000  # of the true means, for the interval of a rank correlation

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),  # cell, gain, claim or order
        ("table", pa.string()),  # EXPERIMENT.BENCHMARK; null of a claim and of an order
        ("title", pa.string()),  # of the row, as it is shown; a claim's statement
        ("benchmark", pa.string()),
        ("source", pa.string()),
        ("method", pa.string()),
        ("variant", pa.string()),  # null for the method as it is
        ("buffer", pa.int64()),  # null without rehearsal
        ("protocol", pa.string()),
        ("quantity", pa.string()),  # one of `frame.SCORES`, tau, or what a claim is of
        ("over_method", pa.string()),  # of a gain, what is subtracted
        ("over_variant", pa.string()),
        ("name", pa.string()),  # of a cell in its table, of a claim
        ("n", pa.int64()),  # seeds; of two methods, the smaller number; of an order, methods
        ("n_planned", pa.int64()),  # seeds; of a claim, means
        ("diverged", pa.int64()),  # runs, which no mean includes
        ("mean", pa.float64()),  # null where there is none: no run, Joint's forgetting
        ("sd", pa.float64()),  # of a cell over seeds, divisor n - 1
        ("low", pa.float64()),  # the ends of the interval; null with one seed
        ("high", pa.float64()),
        ("df", pa.float64()),
        ("level", pa.float64()),
        ("rule", pa.string()),  # of the interval: `statistics.Rule`, or simulation
        ("paper", pa.float64()),  # its number; null where it prints none
        ("verdict", pa.string()),  # of a cell, see `agreement`; of a claim, `claims.VERDICTS`
        ("note", pa.string()),  # what else has to be said: what is untuned, what is missing
    ]
)


def of_study(results: Results) -> pd.DataFrame:
    """All estimates of a study, with the columns of `SCHEMA`; buffer 0 and empty text for none."""
    of_cells = cells(results, results.plan.tables.values())
    parts = [of_cells, gains(results, of_cells), of_claims(results), order(of_cells)]
    return _whole([part for part in parts if len(part)])


def _whole(parts: Collection[pd.DataFrame]) -> pd.DataFrame:
    """The frames as one, with all columns of `SCHEMA`."""
    frame = pd.concat([*parts] or [pd.DataFrame()], ignore_index=True)
    frame = frame.reindex(columns=SCHEMA.names).assign(level=statistics.LEVEL)
    texts = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
    frame[texts] = frame[texts].astype(object).where(frame[texts].notna(), "")
    counts = ["buffer", "n", "n_planned", "diverged"]
    return frame.assign(**frame[counts].fillna(0).astype(int))


def write(results: Results, frame: pd.DataFrame) -> None:
    """Write a study's estimates as Parquet and CSV; they carry the plan of its collected table."""
    study = results.plan.study
    nulls = frame.assign(buffer=show.null_buffer(frame)).mask(frame == "")
    table = pa.Table.from_pandas(nulls, schema=SCHEMA, preserve_index=False)
    plan = {record.PLAN: record.carried(runs_file(study)) or ""}
    write_text(estimates_file(study, "csv"), nulls.to_csv(index=False))
    with atomic(estimates_file(study, "parquet")) as partial:
        pq.write_table(table.replace_schema_metadata(plan), partial)


def cells(results: Results, tables: Collection[Table]) -> pd.DataFrame:
    """The estimates of the cells of some tables: a row for each of `SCORES`."""
    numbers = printed().melt(var_name="quantity", ignore_index=False)
    numbers, parts = numbers.set_index("quantity", append=True), []
    for table in tables:
        members = results.members[results.members["table"] == table.name]
        members = members.assign(
            finished=members["status"] == "finished", diverged=members["status"] == "diverged"
        )
        long = members.melt([*members.columns.difference([*SCORES])], [*SCORES], "quantity")
        groups = long.groupby(["quantity", "name"], sort=False)
        rows = groups[[*PLACE, "table", "title", "printed_variant", "untuned"]].first()
        rows = rows.join(statistics.summary(groups["value"])).reset_index()
        counts = groups[["finished", "diverged"]].sum().assign(n_planned=groups.size())
        rows[["n", "diverged", "n_planned"]] = counts.to_numpy()
        place = rows.assign(variant=rows["printed_variant"])[[*PLACE, "quantity"]]
        rows["paper"] = numbers.reindex(pd.MultiIndex.from_frame(place)).to_numpy()
        rows["df"] = (rows["n"] - 1).where(rows["low"].notna())
        rows["note"] = ("untuned: " + rows["untuned"]).where(rows["untuned"] != "", "")
        rows["verdict"] = [
            agreement(row, table.reduced) if row["quantity"] == "faa" else ""
            for row in show.rows(rows)
        ]
        parts.append(rows.assign(kind="cell", rule="student", source=table.source))
    return _whole(parts)


def agreement(row: Mapping[str, Any], reduced: bool) -> str:
    """What a cell's mean accuracy says of the paper's number beside it; empty without a number.

    The paper prints no spread, so the verdict rests on our seeds only: whether the interval of our
    mean lies within, above or below `AGREEMENT` points of its number. Two cells that are equivalent
    keep the order of its gains of 2.8 to 4.8 points. Of 144 verdicts, a few are wrong by chance.
    """
    if pd.isna(row["paper"]):
        return ""
    if row["n"] + row["diverged"] == 0:
        return "not run"
    if reduced:  # a difference is to be expected
        return "reduced"
    if row["diverged"] or pd.isna(row["low"]):  # or one seed
        return "undecided"
    low, high = row["low"] - row["paper"], row["high"] - row["paper"]
    if max(abs(low), abs(high)) <= AGREEMENT:
        return "equivalent"
    if low > AGREEMENT:
        return "higher"
    return "lower" if high < -AGREEMENT else "undecided"


def difference(new: pd.DataFrame, baseline: pd.DataFrame) -> statistics.Estimate:
    """The gain in accuracy of a cell's runs over another's: paired by seed within a method."""
    alike = new["method"].iloc[0] == baseline["method"].iloc[0]
    arms = [arm.set_index("seed")["faa"] for arm in (new, baseline)]
    return statistics.of_arms(arms, "paired" if alike else "welch")


def gains(results: Results, of_cells: pd.DataFrame) -> pd.DataFrame:
    """The estimates of what each cell gains over another of its table, from members and `cells`."""
    members = dict(list(results.members.groupby(["table", "name"])))
    unchanged = results.members[["table", "name", "unchanged"]].drop_duplicates()
    faa = of_cells[of_cells["quantity"] == "faa"].merge(unchanged)
    same = ("table", "benchmark", "source", "method", "variant", "protocol", "quantity", "name")
    rows = []
    for table in results.plan.tables.values():
        cells = faa[faa["table"] == table.name]
        if table.variants:
            alike = ["method", "buffer", "protocol"]
            bases = cells[cells["unchanged"]].drop_duplicates(alike)  # the first of several
            both = cells.merge(bases, on=alike, suffixes=("", "_over"))
            both = both[both["name"] != both["name_over"]]
        else:
            ours = cells["method"] == REFERENCE
            both = cells[~ours].merge(cells[ours], on="protocol", suffixes=("_over", ""))
            buffers = both[["buffer", "buffer_over"]]
            both = both[(buffers == 0).any(axis=1) | (both["buffer"] == both["buffer_over"])]
        for row in show.rows(both):
            new, baseline = (members[table.name, row[name]] for name in ("name", "name_over"))
            # A variant that is not in Table 4 stands beside its method's own number
            beside = not table.variants or bool(new["printed_variant"].iloc[0])
            rows.append(
                {name: row[name] for name in same}
                | {"kind": "gain", "title": row["title" if table.variants else "title_over"]}
                | {"buffer": row["buffer"] or row.get("buffer_over", 0)}
                | {"over_method": row.get("method_over", row["method"])}
                | {"over_variant": row["variant_over"]}
                | difference(new, baseline)._asdict()
                | {"n_planned": len(set(new["seed"]) & set(baseline["seed"]))}
                | {"diverged": row["diverged"] + row["diverged_over"]}
                | {"paper": row["paper"] - row["paper_over"] if beside else np.nan}
            )
    return pd.DataFrame(rows)


def compared(results: Results, new: str, baseline: str) -> Iterator[str]:
    """A line for each benchmark, source, buffer and protocol of both: `new` minus `baseline`.

    Each is named `METHOD`, or `METHOD.VARIANT`. Only runs as planned count, the code of a method
    included where the study follows it; the lines say how to make the others. Raises `UserError`
    where the study has no such cell, or the two are never in one place.
    """
    study = results.plan.study
    cells = {  # by name, then by all else
        (f"{key.method}.{key.variant}".rstrip("."), key._replace(method="", variant="")): members
        for key, members in results.cells.items()
    }
    names = dict.fromkeys(name for name, _ in cells)
    for name in (new, baseline):
        lookup("method or variant", names, name, f"the tables of {study}")
    both = {
        at: (cells[new, at], cells[baseline, at])
        for name, at in cells
        if name == new and (baseline, at) in cells
    }
    if not both:
        raise UserError(f"no benchmark and buffer of {study} has {new} and {baseline}")
    for key, pair in both.items():
        gain = difference(*pair)
        words = "paired by seed" if gain.rule == "paired" else "Welch's"
        interval = f"95 % interval {gain.low:+.2f} to {gain.high:+.2f}, {words}, {gain.n} seeds"
        ends = interval if gain.n > 1 else "one seed, no interval"
        text = f"{gain.mean:+.2f} points ({ends})" if gain.n else "no finished run of both"
        source = results.plan.runs[pair[0]["run"].iloc[0]].source
        place = f"{key.benchmark} from {source}, {show.place(key.protocol, key.buffer)}"
        yield f"{new} minus {baseline}, {place}: {text}"
        for arm in pair:
            for status, runs in arm[arm["status"] != "finished"].groupby("status")["run"]:
                files = " ".join(str(record_file(study, run)) for run in runs)
                remedy = "" if status == "diverged" else f": snakemake --cores all {files}"
                yield f"  {status}, not counted{remedy}"


def of_claims(results: Results) -> pd.DataFrame:
    """A row for each claim of the paper."""
    values, numbers = values_of(results), printed_keys()
    untuned = {key: members["untuned"].iloc[0] for key, members in results.cells.items()}
    return pd.DataFrame(
        [
            {"kind": "claim", "title": claim.statement, "name": claim.name, "quantity": claim.unit}
            | claims.evaluate(claim, values, numbers, untuned)
            for claim in claims.load()
        ]
    )


def values_of(results: Results) -> claims.Values:
    """The accuracy of each cell by seed, its spread over tasks, and what was probed of it.

    None where a run diverged.
    """
    values: dict[CellKey, pd.Series] = {}
    for cell, members in results.cells.items():
        run = results.plan.runs[members["run"].iloc[0]]
        whole = not (members["status"] == "diverged").any()
        done = members[(members["status"] == "finished") & whole].set_index("seed")
        values[cell] = done["faa"]
        recorded = results.runs.loc[done["run"]].set_index(done.index)
        values |= spread(cell, recorded)
        for key, name, i, j in probed(cell, run.tasks, run.phases) if run.probes else ():
            matrices = recorded[name].items()
            values[key] = pd.Series({seed: m[i][j] for seed, m in matrices if len(m)})
    return values


def spread(cell: CellKey, recorded: pd.DataFrame) -> claims.Values:
    """How much the accuracy of a cell's finished runs varies over tasks, by seed."""
    accuracy = recorded[column("accuracy", cell.protocol)]
    return {cell._replace(quantity="spread"): accuracy.map(metrics.spread).astype(float)}


def probed(cell: CellKey, tasks: int, phases: int) -> Iterator[tuple[CellKey, str, int, int]]:
    """What is probed of a cell after some tasks (-1: all), and its column, row and position."""
    for protocol in PROTOCOLS if phases == tasks else ():  # Joint learns them at once
        learned = cell._replace(protocol=protocol, quantity="learned", layer="network")
        for task in range(tasks):  # which a record has under both protocols
            yield learned._replace(tasks=task + 1), column("accuracy", protocol), task, task
    for quantity, layers in PROBED.items():
        for i, layer in enumerate(layers):
            for after in range(-1, phases + 1):
                key = cell._replace(quantity=quantity, layer=layer, tasks=after)
                yield key, quantity, after, i


def order(of_cells: pd.DataFrame) -> pd.DataFrame:
    """Rank correlations for each column of the paper's tables of which `LEAST` methods ran.

    Over the methods with a buffer: in Class-IL, those without stand below them at any scale. The
    interval is the middle 95 % of the taus of means that are drawn for each method from Student's
    distribution around its mean; where means are close, draws are nearer to 0.
    """
    faa = of_cells[(of_cells["quantity"] == "faa") & of_cells["paper"].notna()]
    faa = faa[(faa["variant"] == "") & (faa["buffer"] > 0) & faa["mean"].notna()]
    columns = ["benchmark", "source", "protocol", "buffer"]
    about = {"kind": "order", "title": "Kendall's tau", "quantity": "tau", "rule": "simulation"}
    rows = []
    for place, group in faa.drop_duplicates(PLACE).groupby(columns, sort=False):
        if len(group) < LEAST:
            continue
        numbers, means, n = (group[name].to_numpy(float) for name in ("paper", "mean", "n"))
        tau = {"n": len(group), "mean": float(kendall(means, numbers))}
        if n.min() > 1:
            chance = np.random.default_rng(0).standard_t(n - 1, (SAMPLES, len(group)))
            taus = kendall(means + chance * group["sd"].to_numpy() / np.sqrt(n), numbers)
            tail = (1 - statistics.LEVEL) / 2
            tau |= zip(("low", "high"), np.quantile(taus, [tail, 1 - tail]), strict=True)
        rows.append(about | dict(zip(columns, place, strict=True)) | tau)
    return pd.DataFrame(rows)


def kendall(values: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kendall's tau-a of `values` `[..., n]` with `others` `[n]`, over the last dimension."""
    first, second = np.triu_indices(len(others), k=1)
    signs = np.sign(values[..., first] - values[..., second])
    return (signs * np.sign(others[first] - others[second])).mean(-1)
