"""Records: what is read, what is refused, and collecting some of them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twf.errors import UserError
from twf.files import record_file, runs_file
from twf.results import record
from twf.study import Plan

TORN, MISSING, DONE = (f"split-cifar10.{name}.s0" for name in ("joint", "er.500", "er.5120"))


@pytest.fixture
def plan(make_plan, recorded) -> Plan:
    """Three runs: a torn record, none, and a good one."""
    plan = make_plan([0], methods=["joint", "er"])
    recorded(plan)
    runs_file("small").unlink()
    record_file("small", TORN).write_bytes(b"PAR1")
    record_file("small", MISSING).unlink()
    return plan


@pytest.mark.parametrize("run", [MISSING, TORN])
def test_collecting_all_refuses_a_record_that_is_not_there_or_cannot_be_read(plan, run):
    with pytest.raises(UserError) as refused:
        record.collect([record_file("small", each) for each in (DONE, run)], runs_file("small"))
    assert str(record_file("small", run)) in str(refused.value)
    assert not runs_file("small").exists()


@pytest.mark.parametrize(
    ("version", "change"),
    [
        ("2", lambda t: t.append_column("more", pa.array([1]))),
        ("2", lambda t: t.set_column(7, "seed", pa.array([0], pa.int32()))),
        ("2", lambda t: t.select(t.column_names[::-1])),
        *((version, lambda t: t) for version in ("1", "3", "", "none")),
    ],
)
def test_other_columns_and_other_versions_are_refused(plan, version, change):
    path = record_file("small", DONE)
    metadata = None if version == "none" else {"twf_record_version": version}
    pq.write_table(change(pq.read_table(path)).replace_schema_metadata(metadata), path)
    with pytest.raises(UserError, match=f"{path} has record version {version} and"):
        record.read(path)


def test_what_is_collected_in_part_carries_no_plan(plan):
    """So Snakemake collects again, whatever the times of records that are brought."""
    record.collect([record_file("small", DONE)], runs_file("small"))
    assert record.carried(runs_file("small")) == ""
    record.collect([], runs_file("small"))
    assert record.read(runs_file("small")).num_rows == 0


def test_a_damaged_record_is_refused_or_says_the_same(plan):
    """A bit anywhere: in a value it is found; what nobody reads, like an encoder's name, may be."""
    path = record_file("small", DONE)
    whole, values = path.read_bytes(), record.read(path)
    refusals = 0
    for at in range(0, len(whole), 23):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            assert record.read(path) == values, f"byte {at}"
        except UserError:
            refusals += 1
    assert refusals > len(whole) / 23 / 3
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=str(path)):
            record.read(path)
