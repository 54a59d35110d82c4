"""Records that were replaced, and taken again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from twf import files
from twf.jobs import checkpoints, replaced
from twf.jobs import run as running
from twf.jobs.run import execute
from twf.results import record
from twf.study import Run
from twf.upkeep import clean

CPU = torch.device("cpu")

pytestmark = pytest.mark.usefixtures("shallow")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs that were trained."""
    runs: list[Run] = []
    train = running.loop.train

    def counted(run: Run, *words: Any) -> Any:
        runs.append(run)
        return train(run, *words)

    monkeypatch.setattr(running.loop, "train", counted)
    return runs


@pytest.fixture
def runs(tiny_run) -> list[Run]:
    """Runs of one name and four rates, of one epoch each."""
    rates = (0.01, 0.02, 0.03, 0.04)
    return [tiny_run("finetune", epochs=1, hyperparameters={"lr": rate}) for rate in rates]


def kept_of(run: Run) -> Path:
    """The record with a run's parameters that is kept."""
    (path,) = files.replaced_file("tiny", run.id, "x").parent.glob(f"{run.digest}*")
    return path


def test_a_network_put_back_trains_nothing(tiny_inputs, runs, begun):
    """The record from the other one is kept, though its parameters are the same."""
    run, checkpoint = runs[0], files.checkpoint_file("origin")
    execute(tiny_inputs, run, CPU)
    was, network = files.record_file("tiny", run.id).read_bytes(), checkpoint.read_bytes()
    loaded = checkpoints.load(checkpoint, run.network)
    other = loaded.network()
    torch.nn.init.zeros_(other.conv1.weight)
    checkpoints.save(checkpoint, other, loaded.about)
    execute(tiny_inputs, run, CPU)
    assert kept_of(run).read_bytes() == was
    checkpoint.write_bytes(network)
    execute(tiny_inputs, run, CPU)
    assert files.record_file("tiny", run.id).read_bytes() == was
    assert begun == [run, run]


def test_a_hyperparameter_put_back_trains_nothing(tiny_inputs, runs, begun, capsys):
    """Its record is the one that was replaced, with a time of now; and so back again."""
    first, second, *_ = runs
    path = files.record_file("tiny", first.id)
    execute(tiny_inputs, first, CPU)
    was = path.read_bytes()
    capsys.readouterr()
    execute(tiny_inputs, second, CPU)
    kept = kept_of(first)
    said = capsys.readouterr().out
    assert kept.read_bytes() == was and str(kept) in said and "twf clean" in said
    last = said.splitlines()[-1]
    assert last.startswith(f"{path}: final average accuracy ")  # what Snakemake's terminal shows
    other, before = path.read_bytes(), time.time()
    execute(tiny_inputs, first, CPU)
    assert path.read_bytes() == was and path.stat().st_mtime >= before - files.SKEW
    assert "as it was before it was replaced; final average" in capsys.readouterr().out
    execute(tiny_inputs, second, CPU)
    assert path.read_bytes() == other
    assert begun == [first, second]


@pytest.mark.parametrize("changed", ["code", "checkpoint", "damaged", "digest"])
def test_a_record_that_is_not_what_would_be_made_now_is_not_taken(
    tiny_inputs, runs, begun, monkeypatch, changed
):
    first, second, *_ = runs
    execute(tiny_inputs, first, CPU)
    execute(tiny_inputs, second, CPU)
    kept = kept_of(first)
    if changed == "damaged":
        kept.write_bytes(b"PAR1")
    elif changed == "digest":  # a record of other parameters under this one's name
        kept.write_bytes(files.record_file("tiny", first.id).read_bytes())
    elif changed == "code":
        made_by = {"version": "1", "commit": None, "method_hash": "0" * 64}
        monkeypatch.setattr(running, "code_origin", lambda *_: made_by)
    else:
        (row,) = record.read(kept).to_pylist()
        row["provenance"] = row["provenance"].replace('"network_sha256": "', '"network_sha256": "0')
        record.write(kept, row)
    execute(tiny_inputs, first, CPU)
    assert begun == [first, second, first]


def test_a_run_that_is_done_anew_keeps_no_record_of_the_same_parameters(tiny_inputs, runs, begun):
    run = runs[0]
    for _ in range(2):
        execute(tiny_inputs, run, CPU)
    assert begun == [run, run] and not Path("replaced").exists()


def test_no_more_than_a_few_of_a_run_are_kept_and_clean_removes_them(
    tiny_inputs, runs, begun, monkeypatch
):
    monkeypatch.setattr(replaced, "KEPT", 2)
    for run in runs:
        execute(tiny_inputs, run, CPU)
    folder = files.replaced_file("tiny", runs[0].id, "x").parent
    assert set(folder.iterdir()) == {kept_of(run) for run in runs[1:3]}
    assert Path("replaced/tiny") in clean.find()
    clean.remove(clean.find())
    assert not folder.exists() and files.record_file("tiny", runs[0].id).exists()


def test_the_oldest_that_is_kept_can_be_taken_and_none_is_lost(
    tiny_inputs, runs, begun, monkeypatch
):
    monkeypatch.setattr(replaced, "KEPT", 2)
    for run in [*runs[:3], runs[0]]:
        execute(tiny_inputs, run, CPU)
    assert begun == runs[:3]
    (row,) = record.read(files.record_file("tiny", runs[0].id)).to_pylist()
    assert row["digest"] == runs[0].digest


def test_a_folder_that_cannot_be_written_costs_no_record(tiny_inputs, runs, capsys):
    Path("replaced").write_text("a file")
    first, second, *_ = runs
    for run in (first, second):
        execute(tiny_inputs, run, CPU)
    (row,) = record.read(files.record_file("tiny", first.id)).to_pylist()
    assert row["digest"] == second.digest
    assert "is not kept for a return to its parameters" in capsys.readouterr().out
