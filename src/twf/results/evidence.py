"""What was measured for the findings: a table of records for each study, in `results/evidence`.

A row is a record as its run wrote it, and never changes. A table has the columns that its records
have, whatever records have today; a record without one of them is null there.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from twf.errors import UserError
from twf.files import atomic, locked

EVIDENCE = Path("results/evidence")
NEEDED = {"run", "study", "provenance"}  # columns of any record


def add(folder: Path, evidence: Path = EVIDENCE) -> tuple[Path, int]:
    """Append the records of a folder, of any version of the code, to the table of their study.

    Returns the table's path and the number of records that were new. Raises `UserError`, and
    changes nothing, where the folder has no record, has records of several studies, or has another
    record of a run that is in the table.
    """
    tables = [read_table(file) for file in sorted(folder.glob("*.parquet"))]
    studies = sorted({study for table in tables for study in table["study"].to_pylist()})
    if len(studies) != 1:
        raise UserError(
            f"{folder} has records of {len(studies)} studies ({', '.join(studies) or 'none'}), not "
            "of one: name a folder such as results/STUDY/runs"
        )
    path = evidence / f"{studies[0]}.parquet"
    with locked(path.with_name(f".{path.name}.lock"), f"adding to {path}"):
        return path, _append(path, folder, tables)


def _append(path: Path, folder: Path, tables: list[pa.Table]) -> int:
    before = [read_table(path)] if path.exists() else []
    try:
        together = pa.concat_tables(before + tables, promote_options="default")
    except pa.ArrowException as error:
        raise UserError(f"{folder} and {path} have columns of different types: {error}") from None
    kept: dict[str, tuple[int, str]] = {}
    for i, row in enumerate(together.to_pylist()):
        text = repr(row)  # compares every bit of a number, and NaN with NaN
        if kept.setdefault(row["run"], (i, text))[1] != text:
            raise UserError(
                f"{path} has another record of {row['run']}, which stays; leave "
                f"{row['run']}.parquet out of {folder}"
            )
    table = together.take([i for i, _ in kept.values()])
    with atomic(path) as partial:
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
    return len(table) - sum(map(len, before))


def read_table(path: Path) -> pa.Table:
    """The records of a file, with the columns that it has.

    Raises `UserError` for a damaged one, and for a table of something else.
    """
    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it, or leave it out") from None
    if missing := NEEDED - set(table.column_names):
        raise UserError(
            f"{path} has no records, as it lacks {', '.join(sorted(missing))}: name a folder such "
            "as results/STUDY/runs, or a file such as results/evidence/STUDY.parquet"
        )
    return table
