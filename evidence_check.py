"""Compare each record file with its row in results/evidence, value by value. Prints the counts."""

from pathlib import Path

import pyarrow.parquet as pq

from twf.results import evidence

values = records = 0
for path in sorted(Path("results").glob("*/runs/*.parquet")):
    (before,) = pq.read_table(path).to_pylist()
    table = evidence.read_table(evidence.EVIDENCE / f"{path.parts[1]}.parquet")
    rows = [row for row in table.to_pylist() if row["run"] == path.stem]
    assert len(rows) == 1, path
    (after,) = rows
    for name, value in before.items():
        assert repr(after[name]) == repr(value), (path, name)
        values += 1
    assert all(after[name] is None for name in after.keys() - before.keys()), path
    assert before["study"] == path.parts[1] and before["run"] == path.stem, path
    records += 1
inside = sum(len(evidence.read_table(p)) for p in evidence.EVIDENCE.glob("*.parquet"))
assert inside == records
print(f"{records} record files, {values} values: each is equal in results/evidence, {inside} rows")
