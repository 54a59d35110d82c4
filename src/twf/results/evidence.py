"""What was measured for the findings: a table of records for each study, in `results/evidence`.

A row is a record as its run wrote it, and never changes. Tables have the columns that their records
have, whatever records have today; a record without a column that others of its study have is null
there.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from twf.errors import UserError
from twf.files import atomic

EVIDENCE = Path("results/evidence")


def add(folder: Path, evidence: Path = EVIDENCE) -> tuple[Path, int]:
    """Append the records of a folder to the table of their study.

    `folder` holds record files, `RUN.parquet`, of any version of the code. Returns the table's path
    and the number of records that were new. Raises `UserError`, and changes nothing, where the
    folder has no record, has records of several studies, or has another record of a run that is in
    the table.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise UserError(f"no record in {folder}: name a folder such as results/STUDY/runs")
    tables = [read_table(file) for file in files]
    studies = sorted({study for table in tables for study in table["study"].to_pylist()})
    if len(studies) > 1:
        raise UserError(f"{folder} has records of several studies: {', '.join(studies)}")
    path = evidence / f"{studies[0]}.parquet"
    if path.exists():
        tables.insert(0, read_table(path))
    try:
        together = pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        raise UserError(f"{folder} and {path} have columns of different types: {error}") from None
    before = len(tables[0]) if path.exists() else 0
    kept: dict[str, str] = {}
    rows = []
    for i, row in enumerate(together.to_pylist()):
        text = repr(row)  # compares every bit of a number, and NaN with NaN
        is_new = row["run"] not in kept
        if kept.setdefault(row["run"], text) != text:
            raise UserError(
                f"{path} has another record of {row['run']}, which stays; leave "
                f"{row['run']}.parquet out of {folder}"
            )
        if is_new:
            rows.append(i)
    evidence.mkdir(parents=True, exist_ok=True)
    with atomic(path) as partial:
        pq.write_table(together.take(rows), partial, compression="zstd", write_page_checksum=True)
    return path, len(rows) - before


def read_table(path: Path) -> pa.Table:
    """The records of a file, with the columns that it has. Raises `UserError` for a damaged one."""
    try:
        return pq.read_table(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it, or leave it out") from None
