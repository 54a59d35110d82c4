"""What was measured for the findings: a table of records for each study, in `results/evidence`.

A row of it is a record as the run wrote it, and never changes. Records of an earlier version of the
schema lack a column, which is then null.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from twf.errors import UserError
from twf.files import atomic
from twf.results.record import SCHEMA, read

EVIDENCE = Path("results/evidence")


def add(folder: Path, evidence: Path = EVIDENCE) -> tuple[Path, int]:
    """Append the finished records of a folder to the table of their study.

    `folder` holds record files, `RUN.parquet`. Returns the table's path and the number of records
    that it did not have yet. Raises `UserError` where the folder has no record, has records of
    several studies, or has another record of a run that is in the table: such a run keeps the
    record that was first.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise UserError(f"no record in {folder}: name a folder such as results/STUDY/runs")
    for path in files:
        read(path)  # a damaged file is named here
    new = pa.concat_tables([_padded(pq.read_table(path)) for path in files])
    studies = new.column("study").unique().to_pylist()
    if len(studies) > 1:
        raise UserError(f"{folder} has records of several studies: {', '.join(studies)}")
    path = evidence / f"{studies[0]}.parquet"
    old = read_table(path) if path.exists() else SCHEMA.empty_table()
    kept = dict(zip(old.column("run").to_pylist(), old.to_pylist(), strict=True))
    added = []
    for row in new.to_pylist():
        if row["run"] not in kept:
            added.append(row)
        elif repr(kept[row["run"]]) != repr(row):  # the same text of each number, NaN too
            raise UserError(
                f"{path} has another record of {row['run']}, which stays; remove "
                f"{folder / row['run']}.parquet or add it under another study's name"
            )
    table = pa.concat_tables([old, pa.Table.from_pylist(added, schema=SCHEMA)])
    evidence.mkdir(parents=True, exist_ok=True)
    with atomic(path) as partial:
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
    return path, len(added)


def read_table(path: Path) -> pa.Table:
    """The records of a table of the evidence, in the columns of `SCHEMA`."""
    try:
        return pq.read_table(path, page_checksum_verification=True).cast(SCHEMA)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): git has it as it was") from None


def _padded(table: pa.Table) -> pa.Table:
    """A record with the columns of today's schema; null where it has none."""
    for i, field in enumerate(SCHEMA):
        if field.name not in table.column_names:
            table = table.add_column(i, field, pa.nulls(len(table), field.type))
    return table.select(SCHEMA.names).cast(SCHEMA)
