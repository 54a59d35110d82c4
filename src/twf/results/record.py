"""The record of a run: one Parquet file of one row. The truth that tables and figures come from."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from twf.errors import UserError
from twf.files import atomic

VERSION = 2  # of the schema below; raised by each change of it

REPORT_MARK = '<meta name="twf-plan" content="{}">'  # in a report's head
TABLE_MARK = "twf-plan {}"  # in a comment of a table, and of what a search found
PLAN = b"twf_plan"  # the metadata of collected records and of estimates: their study's plan

LAYERS = ("stem", "Layer 1", "Layer 2", "Layer 3", "Layer 4")
PROBED = {"cka": LAYERS, "nearest_neighbours": LAYERS[-2:], "gates_open": LAYERS}  # by column

_matrix = pa.list_(pa.list_(pa.float64()))
_epoch = pa.struct(
    [
        ("phase", pa.int32()),  # the task trained, from 0; Joint has one phase
        ("epoch", pa.int32()),
        ("seconds", pa.float64()),
        ("loss", pa.float64()),  # mean over the epoch's steps of the sum of the terms
        ("terms", pa.map_(pa.string(), pa.float64())),  # each weighted as in the sum
    ]
)

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("study", pa.string()),
        ("benchmark", pa.string()),
        ("source", pa.string()),
        ("method", pa.string()),
        ("pretrained", pa.bool_()),
        ("buffer", pa.int64()),  # null without rehearsal
        ("seed", pa.int64()),
        ("status", pa.string()),  # finished, or diverged
        ("reason", pa.string()),  # why it diverged; null otherwise
        # per cent on each task before training, by the network with its fresh classifier
        ("initial_class_il", pa.list_(pa.float64())),
        ("initial_task_il", pa.list_(pa.float64())),
        # accuracy[i][j]: per cent on task j after phase i, from 0 to 100; every task, seen or not
        ("accuracy_class_il", _matrix),
        ("accuracy_task_il", _matrix),
        # before training and after each phase, where the run is probed; empty elsewhere
        ("cka", _matrix),  # of each layer with the initial network, from 0 to 1
        ("nearest_neighbours", _matrix),  # per cent on the source over Layers 3 and 4
        ("gates_open", _matrix),  # per cent of each layer's gates, of methods that have them
        ("history", pa.list_(_epoch)),
        ("seconds", pa.float64()),  # the whole run, start-up excluded
        ("peak_memory_mib", pa.float64()),  # of the device on CUDA, of the process on CPU
        ("started", pa.timestamp("us", tz="UTC")),
        ("device", pa.string()),
        ("host", pa.string()),
        ("digest", pa.string()),  # SHA-256 of the resolved parameters
        ("provenance", pa.string()),  # JSON: `jobs.run.execute` has its keys
    ],
    metadata={"twf_record_version": str(VERSION)},
)


def write(path: Path, row: dict[str, Any]) -> None:
    """Write one record; every column of `SCHEMA` must be there, and no other."""
    if row.keys() != set(SCHEMA.names):
        raise ValueError(f"record and schema differ in {row.keys() ^ set(SCHEMA.names)}")
    _write(pa.Table.from_pylist([row], schema=SCHEMA), path)


def read(path: Path) -> pa.Table:
    """Read a record or a table of records.

    Raises `UserError` where there is none, for another version of the schema, for columns that are
    not the schema's, and for a torn or damaged file.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            schema = file.schema_arrow
            version = (schema.metadata or {}).get(b"twf_record_version", b"none").decode()
            if version != str(VERSION) or not schema.equals(SCHEMA):
                raise UserError(
                    f"{path} has record version {version} and {len(schema)} columns, this code "
                    f"reads version {VERSION} with {len(SCHEMA)}; delete it and run again, or use "
                    "the version of twf that wrote it"
                )
            return file.read()
    except FileNotFoundError:
        raise UserError(f"no {path}: `snakemake --cores all {path}` makes it") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it and run again") from None


def provenance(row: Mapping[str, Any]) -> dict[str, Any]:
    """The decoded provenance of a record's row; empty where the record cannot be read."""
    return dict(json.loads(row["provenance"] or "{}"))


def precision(provenance: Mapping[str, Any]) -> str:
    """What a run with this provenance was computed in; tf32 is fp32 on a CPU, which has no TF32."""
    name = str(provenance.get("precision", "not recorded"))
    return "fp32" if name == "tf32" and "cuda" not in provenance["versions"] else name


def plan_of(provenance: Mapping[str, Any], follow_code: bool = False) -> dict[str, Any]:
    """The plan that a record with this provenance was made by: see `twf.study.products`.

    With the method's code where its study is to follow that, whether or not it did so then.
    """
    plan = {"parameters": provenance.get("parameters"), **provenance.get("plan", {})}
    code = {"code": provenance.get("code", {}).get("method_hash")} if follow_code else {}
    return {key: value for key, value in plan.items() if key != "code"} | code


def collect(records: list[Path], output: Path, plan: str = "") -> None:
    """Put the records of a study into one table, a row each, ordered by run.

    It carries the study's plan, a `twf.study.products.study_digest`; empty where it has not all.
    """
    table = pa.concat_tables([SCHEMA.empty_table(), *map(read, records)]).sort_by("run")
    _write(table.replace_schema_metadata({**(SCHEMA.metadata or {}), PLAN: plan}), output)


def carried(path: Path) -> str | None:
    """The plan that a file of a study carries; None without such a file, or empty."""
    try:
        if path.suffix != ".parquet":
            page = path.read_text(encoding="utf-8", errors="replace")
            mark = REPORT_MARK if path.suffix == ".html" else TABLE_MARK
            match = re.search(mark.format("([0-9a-f]{64})"), page)
            return match[1] if match else ""
        metadata = pq.read_metadata(path).metadata or {}
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError):
        return ""
    return metadata.get(PLAN, b"").decode(errors="replace")


def _write(table: pa.Table, path: Path) -> None:
    with atomic(path) as partial:
        # `read` holds the pages to their checksums
        pq.write_table(table, partial, write_page_checksum=True)
