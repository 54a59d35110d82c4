"""A record in a table of evidence, run again from itself."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support import execute

from twf import files
from twf.errors import UserError
from twf.jobs import again
from twf.jobs import run as jobs
from twf.results import evidence
from twf.study.params import Tracking

pytestmark = pytest.mark.usefixtures("shallow")

RUN = "split-target.er.16.s0"


@pytest.fixture
def table(tiny_inputs, tiny_run, tmp_path) -> Path:
    """The table of a study with one record."""
    run = tiny_run("er").model_copy(update={"id": RUN})
    execute(tiny_inputs, run, torch.device("cpu"))
    path, _ = evidence.add(files.record_file("tiny", RUN).parent, tmp_path / "evidence")
    return path


def change(table: Path, without: str = "", **changes: object) -> None:
    """Write the table's record with other provenance: `PART={KEY: VALUE}`."""
    (row,) = pq.read_table(table).to_pylist()
    provenance = json.loads(row["provenance"])
    for part, values in changes.items():
        provenance[part] |= values
    provenance["inputs"].pop(without, None)
    row["provenance"] = json.dumps(provenance)
    pq.write_table(pa.Table.from_pylist([row], pq.read_schema(table)), table)


def repeat(table: Path, seed: int | None = None) -> list[str]:
    recorded = again.read_row(table, RUN)
    run, plan = again.planned(recorded, seed, table.parent)
    jobs.execute(run, plan, Tracking(mode="off"), torch.device("cpu"))
    made = again.read_row(files.record_file(run.study, run.id), run.id)
    return list(again.compared(recorded, made))


def test_a_record_made_again_is_the_same_and_leaves_the_first(table):
    before = table.read_bytes()
    assert repeat(table) == ["every accuracy and every loss is the record's, to the last bit"]
    assert table.read_bytes() == before
    assert files.record_file("again-tiny", RUN).exists()


def test_a_run_that_diverges_again_is_the_same(table):
    done = again.read_row(table, RUN)
    lost = done | {"status": "diverged", "history": [{"loss": float("nan"), "terms": []}]}
    other = lost | {"history": [{"loss": float("nan"), "terms": []}]}  # another NaN
    (said,) = again.compared(lost, other)
    assert said == "every accuracy and every loss is the record's, to the last bit"
    lost |= {"accuracy_class_il": lost["accuracy_class_il"][:1]}
    assert "Class-IL: diverged now" in next(again.compared(done, lost))


def test_another_seed_and_other_code_are_named_with_both_numbers(table):
    change(table, code={"method_hash": "of other code"}, versions={"torch": "2.0"})
    numbers, made = repeat(table, seed=3)[-2:]
    assert "now" in numbers and "in the record" in numbers
    assert "seed: 0 -> 3" in made and "code of er" in made and "torch: 2.0 -> " in made
    assert files.record_file("again-tiny", RUN.replace(".s0", ".s3")).exists()


def test_an_older_records_network_is_known_by_its_files_hash(table):
    hashes = table.parent / "networks/hashes.csv"
    hashes.parent.mkdir()
    hashes.write_text("file,network_sha256,checkpoint_sha256\n")
    network = again.read_row(table, RUN)["provenance"]["inputs"]["network_sha256"]
    change(table, inputs={"checkpoint_sha256": "f" * 64}, without="network_sha256")
    with pytest.raises(UserError, match="f{64}.*weights"):
        repeat(table)
    hashes.write_text(f"{hashes.read_text()}it,{network},{'f' * 64}\n")
    assert "to the last bit" in repeat(table)[0]


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("inputs", {"train_fingerprint": "0" * 64}, "train_fingerprint is 0{64}.*prepare target"),
        ("inputs", {"network_sha256": "0" * 64}, "network_sha256 is 0{64}.*sources.origin"),
        ("parameters", {"frozen": 4}, "needs frozen, .*git worktree add"),
        ("parameters", {"fidelity": {"F99": "paper"}}, "needs F99, .*twf run tiny"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_trained(table, part, changes, message):
    change(table, code={"commit": "0123456789"}, **{part: changes})
    with pytest.raises(UserError, match=message):
        repeat(table)
    assert not files.record_file("again-tiny", RUN).exists()
